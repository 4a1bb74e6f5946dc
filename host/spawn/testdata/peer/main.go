// The program of the tests: it says what it has, or hangs.
package main

import (
	"encoding/json"
	"os"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "hang" {
		os.Stderr.WriteString("hanging\n")
		time.Sleep(time.Hour)
	}
	dir, _ := os.Getwd()
	_, err := os.Stat("/etc/passwd")
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"args": os.Args[1:], "dir": dir, "given": os.Getenv("GIVEN"), "secret": os.Getenv("SECRET"), "home": os.Getenv("HOME"), "host": err == nil,
	})
}
