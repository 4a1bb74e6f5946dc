package main

import (
	"github.com/spf13/cobra"

	"toolpost/node/storage"
)

func (a *app) storeCommand() *cobra.Command {
	return group(&cobra.Command{Use: "store", Short: "Back up the store, or move it to another database"},
		a.withJSON("print the state of the copy's audit log as JSON", &cobra.Command{
			Use: "copy URL", Short: "Copy the store to an empty one: sqlite:FILE or postgres://...",
			Long: "Copies everything in the store of the config, as it is at this moment, and verifies the audit log of the\n" +
				"copy. The target must be empty or not exist yet. To move, stop `toolpost serve`, copy, and name the copy\n" +
				"in `store: {url: ...}`. Files that tools made (.toolpost/assets) and keys stay where they are.\n\n" +
				"Do not put the password of a database into the URL: use PGPASSWORD or ~/.pgpass.",
			Example: "  toolpost store copy sqlite:backup.db\n  toolpost store copy postgres://toolpost@db.example.org/toolpost",
			Args:    words(1, 1),
			RunE: func(c *cobra.Command, args []string) error {
				cfg, err := a.load()
				if err != nil {
					return err
				}
				url, _, err := storage.Place(args[0]) // relative to the working folder, not to the config
				if err != nil {
					return err
				}
				r, err := storage.Copy(c.Context(), cfg, url)
				if err != nil {
					return err
				}
				return a.conclude(r, func() { a.showReport(*r) }, len(r.Findings) > 0)
			},
		}))
}
