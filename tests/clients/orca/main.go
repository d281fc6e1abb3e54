// orca-node LISTEN LOAD [INTERVAL]: a gRPC server that says how it is by OpenRcaService, until stdin ends.
//
// Without INTERVAL it is gRPC's own service, which sends a report at once and then every 30 s at the most often. With it, the
// interfaces that are generated from the protocol's definition, each report with a load that is 0.01 above the last.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	servicev3 "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/orca"
)

type rising struct {
	servicev3.UnimplementedOpenRcaServiceServer
	load     float64
	interval time.Duration
}

func (r rising) StreamCoreMetrics(request *servicev3.OrcaLoadReportRequest, stream servicev3.OpenRcaService_StreamCoreMetricsServer) error {
	if asked := request.GetReportInterval().AsDuration(); asked > r.interval {
		r.interval = asked
	}
	for load := r.load; ; load += 0.01 {
		report := &orcav3.OrcaLoadReport{CpuUtilization: load, RpsFractional: 7, NamedMetrics: map[string]float64{"queue": 3}}
		if err := stream.Send(report); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(r.interval):
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	check(err)
	load, err := strconv.ParseFloat(os.Args[2], 64)
	check(err)
	server := grpc.NewServer()
	if len(os.Args) > 3 {
		interval, err := time.ParseDuration(os.Args[3])
		check(err)
		servicev3.RegisterOpenRcaServiceServer(server, rising{load: load, interval: interval})
	} else {
		recorder := orca.NewServerMetricsRecorder()
		recorder.SetCPUUtilization(load)
		check(orca.Register(server, orca.ServiceOptions{ServerMetricsProvider: recorder}))
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	check(server.Serve(listener))
}
