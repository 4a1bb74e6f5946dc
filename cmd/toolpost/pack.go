package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"toolpost/node"
)

func (a *app) packCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "pack",
		Short: "Sign, verify and install packs of namel3ss tools",
		Long: "A pack is a folder with pack.yaml, the tools' code and capabilities.yaml. A signature covers every file of\n" +
			"the pack, so any change, addition or removal is detected.",
		Example: "  toolpost pack keygen team.key\n  toolpost pack sign ./greetings --key team.key\n" +
			"  toolpost pack install ./greetings --app ./app --key team.key.pub",
	}, a.packKeygen(), a.packSign(), a.packVerify(), a.packInstall())
}

func (a *app) packKeygen() *cobra.Command {
	return &cobra.Command{
		Use: "keygen FILE", Short: "Make a key pair: FILE, which must stay secret, and FILE.pub", Args: words(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := (node.Packs{}).Keygen(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.out, "wrote %s and %s.pub\n", args[0], args[0])
			return err
		},
	}
}

func (a *app) packSign() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "sign DIR --key FILE", Short: "Sign every file of a pack with a private key", Args: words(1, 1),
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := node.Packs{}.Sign(args[0], key)
			if err != nil {
				return err
			}
			return a.tell(s, "signed %s: %d files, signer %s, %s", clean(args[0]), len(s.Files), s.SignerID, s.Digest)
		},
	}
	c.Flags().StringVar(&key, "key", "", "the private key")
	_ = c.MarkFlagRequired("key")
	return a.withJSON("print the signature as JSON", c)
}

func (a *app) packVerify() *cobra.Command {
	var keys []string
	c := &cobra.Command{
		Use: "verify DIR --key FILE.pub", Short: "Check that the pack is unchanged since a trusted key signed it", Args: words(1, 1),
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := node.Packs{}.Verify(args[0], keys)
			if err != nil {
				return err
			}
			return a.tell(s, "%s is as signer %s signed it: %d files", clean(args[0]), s.SignerID, len(s.Files))
		},
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "a trusted public key; repeatable")
	_ = c.MarkFlagRequired("key")
	return a.withJSON("print the signature as JSON", c)
}

func (a *app) packInstall() *cobra.Command {
	var keys []string
	var app string
	var unsigned, replace bool
	c := &cobra.Command{
		Use: "install DIR [flags]", Short: "Verify a pack and copy it into an app", Args: words(1, 1),
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := node.Packs{}.Install(args[0], app, keys, unsigned, replace)
			if err != nil {
				return err
			}
			return a.tell(p, "installed %s %s in %s", clean(p.ID), clean(p.Version), clean(p.Path))
		},
	}
	c.Flags().StringVar(&app, "app", ".", "the app's folder")
	c.Flags().StringArrayVar(&keys, "key", nil, "a trusted public key; repeatable")
	c.Flags().BoolVar(&unsigned, "unsigned", false, "install without checking the signature")
	c.Flags().BoolVar(&replace, "replace", false, "replace a pack of the same id")
	return a.withJSON("print what was installed as JSON", c)
}
