// Package examples holds a config and one sample tool of each protocol, as `toolpost init` writes them.
package examples

import "embed"

// Files are the samples. They are named one by one, so that nothing that lies beside them gets in.
//
//go:embed toolpost.yaml
//go:embed greeter/app.ai greeter/.namel3ss/tools.yaml greeter/tools/greeting.py
//go:embed torch/torch.py
var Files embed.FS
