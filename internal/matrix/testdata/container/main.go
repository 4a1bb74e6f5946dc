// The tools of the matrix as the program of a container image: a request on stdin, a reply on stdout.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

type problem struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func main() {
	var request struct {
		Tool    string          `json:"tool"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	reply := map[string]any{"ok": true, "protocol_version": 1}
	switch request.Tool {
	case "echo":
		reply["result"] = request.Payload
	case "fail":
		var said struct {
			Message string `json:"message"`
		}
		if err := json.Unmarshal(request.Payload, &said); err != nil {
			said.Message = err.Error()
		}
		reply["ok"], reply["error"] = false, problem{"NoTorch", said.Message}
	case "hang", "wait":
		time.Sleep(time.Hour)
	case "report":
		fmt.Fprintln(os.Stderr, "half way")
		reply["result"] = map[string]bool{"done": true}
	case "large":
		reply["result"] = map[string]string{"text": strings.Repeat("x", 1<<20)}
	default:
		reply["ok"], reply["error"] = false, problem{"LookupError", "no tool " + request.Tool}
	}
	if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
		os.Exit(1)
	}
}
