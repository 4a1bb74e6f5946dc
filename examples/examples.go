// Package examples holds a config, sample tools and an adventure made of such tools, as `toolpost init` writes them.
package examples

import "embed"

// Config is the config of a new folder. It has the sources files and greeter.
//
//go:embed init.yaml
var Config []byte

// Files holds the samples, with a config for all of them. They are listed one by one, so that no other file beside them is
// included.
//
//go:embed toolpost.yaml
//go:embed greeter/app.ai greeter/.namel3ss/tools.yaml greeter/tools/greeting.py
//go:embed torch/torch.py
//go:embed adventure/story.yaml adventure/paint.py adventure/scene.py adventure/props.py adventure/library/catalogue.txt
//go:embed adventure/dice/app.ai adventure/dice/.namel3ss/tools.yaml adventure/dice/tools/table.py
var Files embed.FS
