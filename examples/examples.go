// Package examples holds a config, sample tools and an adventure that is made of such tools, as `toolpost init` writes
// them.
package examples

import "embed"

// Files are the samples. They are named one by one, so that nothing that lies beside them gets in.
//
//go:embed toolpost.yaml
//go:embed greeter/app.ai greeter/.namel3ss/tools.yaml greeter/tools/greeting.py
//go:embed torch/torch.py
//go:embed adventure/story.yaml adventure/paint.py adventure/scene.py adventure/props.py adventure/library/catalogue.txt
//go:embed adventure/dice/app.ai adventure/dice/.namel3ss/tools.yaml adventure/dice/tools/table.py
var Files embed.FS
