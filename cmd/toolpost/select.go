package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"toolpost/node"
)

func (a *app) selectCommand() *cobra.Command {
	var inputs string
	c := &cobra.Command{
		Use:   "select [flags] -- POLICY [ARGUMENT ...]",
		Short: "Let an external policy choose a tool from the menu",
		Long: "Runs POLICY, a program that reads the menu of tools as JSON on stdin and prints one selection in Machina's\n" +
			"grammar, such as <PICK><SID0007><END>, and prints what it decided: the tool and its inputs, ready for\n" +
			"`toolpost call`.",
		Example: "  toolpost select --inputs '{\"name\": \"Ada\"}' -- python3 policy.py",
		Args:    words(1, -1), DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			a.json = true
			b, err := a.open(c.Context(), node.Options{})
			if err != nil {
				return err
			}
			defer b.close()
			selected, err := node.Select(c.Context(), args, b, me(), json.RawMessage(inputs))
			if err != nil {
				return err
			}
			return a.printJSON(selected)
		},
	}
	c.Flags().StringVar(&inputs, "inputs", "", "the inputs so far, a JSON object; the selection may patch them")
	return a.withServer(c)
}
