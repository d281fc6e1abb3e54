module evener.example/tests/orca

go 1.23

require (
	github.com/cncf/xds/go v0.0.0-20250326154945-ae57f3c0d45f
	google.golang.org/grpc v1.72.2
)

require (
	github.com/envoyproxy/protoc-gen-validate v1.2.1 // indirect
	golang.org/x/net v0.35.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.22.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250218202821-56aae31c358a // indirect
	google.golang.org/protobuf v1.36.5 // indirect
)
