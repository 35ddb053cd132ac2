package serve

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/permit"
	adminv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admin/v1"
)

// permits let operators have this dispatcher judge by a stale configuration, with a store or without.
type permits struct {
	keeper  *permit.Keeper
	service *permit.Service
}

// permits makes them. A permit that was given before the process was started is in force again.
func (c *storeConfig) permits(live *config.Store, id string, log *slog.Logger) (*permits, error) {
	keeper, err := permit.New(permit.Options{Live: live, File: c.stateFile(permit.FileName), Logger: log})
	if err != nil {
		return nil, err
	}
	service, err := permit.NewService(permit.ServiceOptions{
		Keeper: keeper, ID: id, Identity: caller, Operators: c.operator, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	keeper.Restore()
	return &permits{keeper, service}, nil
}

// register serves AdminService.
func (p *permits) register(s *grpc.Server) { adminv1.RegisterAdminServiceServer(s, p.service) }

// run works until ctx ends.
func (p *permits) run(ctx context.Context) error { return p.keeper.Run(ctx) }
