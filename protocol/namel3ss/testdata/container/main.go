// The tool of a container image: it reads a request, as the contract has it, and does what payload.do says.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	var request struct {
		ProtocolVersion int    `json:"protocol_version"`
		Tool            string `json:"tool"`
		TraceID         string `json:"trace_id"`
		Payload         struct {
			Do string `json:"do"`
		} `json:"payload"`
		Context struct {
			Runner string `json:"runner"`
		} `json:"capability_context"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	result := map[string]any{}
	switch request.Payload.Do {
	case "look":
		result["write"] = text(os.WriteFile("/file", nil, 0o644))
		result["tmp"] = text(os.WriteFile("/tmp/file", nil, 0o644))
		interfaces, _ := net.Interfaces()
		result["interfaces"] = len(interfaces)
		status, _ := os.ReadFile("/proc/self/status")
		result["status"] = string(status)
		result["args"] = os.Args[1:]
		result["greeting"] = os.Getenv("GREETING")
		result["runner"] = request.Context.Runner
		_, err := os.Stat("/etc/passwd")
		result["host"] = err == nil
	case "hang":
		fmt.Fprintln(os.Stderr, "hanging")
		time.Sleep(time.Hour)
	case "crash":
		fmt.Fprintln(os.Stderr, "the last words")
		os.Exit(3)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"ok": true, "protocol_version": 1, "result": result})
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return "written"
}
