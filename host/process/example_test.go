package process_test

import (
	"fmt"

	"toolpost/host/process"
	"toolpost/wire/bounded"
)

func ExampleStart() {
	child, err := process.Start(process.Command{
		Argv: []string{"sh", "-c", `read name; echo "hello $name"; sleep 1000 & exit 3`},
		Env:  []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer child.Close()
	child.Feed([]byte("world\n"))
	line, err := bounded.NewLines(child.Stdout, bounded.LineLimits{}).Next()
	fmt.Println(string(line), err)
	fmt.Println(child.Wait()) // the sleep is ended too
	// Output:
	// hello world <nil>
	// exit status 3
}
