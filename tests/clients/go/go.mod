module evener.example/tests/clients

go 1.19
