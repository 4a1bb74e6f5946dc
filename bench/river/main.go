// Command river is a reference of the benchmarks: it makes and works off empty jobs of River. It is a module of its own, so
// that the main one does not depend on River. For each number on stdin it makes that many jobs, waits until they are
// completed, and prints how many nanoseconds that took.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"
)

type empty struct {
	Path string `json:"path"`
}

func (empty) Kind() string { return "empty" }

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: river URL CALLERS")
		os.Exit(2)
	}
	callers, err := strconv.Atoi(os.Args[2])
	if err = errors.Join(err, serve(context.Background(), os.Args[1], callers)); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// serve makes jobs, with as many callers at once, until stdin ends.
func serve(ctx context.Context, url string, callers int) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = int32(callers) + 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := open(ctx, pool)
	if err != nil {
		return err
	}
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 10_000, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		jobs, err := strconv.Atoi(in.Text())
		if err != nil {
			return err
		}
		took, err := lap(ctx, client, completed, callers, jobs)
		if err != nil {
			return err
		}
		fmt.Println(took.Nanoseconds())
	}
	return client.Stop(ctx)
}

// open makes River's tables, and a client. Its defaults look for jobs ten times a second: these are for many short jobs.
func open(ctx context.Context, pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(pool)
	quiet := slog.New(slog.DiscardHandler)
	tables, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err == nil {
		_, err = tables.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[empty]) error { return nil }))
	return river.NewClient(driver, &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: quiet, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
	})
}

// lap makes jobs, one transaction for each, and waits until all are completed.
func lap(
	ctx context.Context, client *river.Client[pgx.Tx], completed <-chan *river.Event, callers, jobs int,
) (time.Duration, error) {
	began := time.Now()
	var g errgroup.Group
	for c := range callers {
		g.Go(func() error {
			for i := c; i < jobs; i += callers {
				if _, err := client.Insert(ctx, empty{Path: "f.txt"}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range jobs {
		select {
		case <-completed:
		case <-time.After(time.Minute):
			return 0, errors.Join(g.Wait(), errors.New("the jobs were not completed within a minute"))
		}
	}
	return time.Since(began), g.Wait()
}
