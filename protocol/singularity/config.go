package singularity

// DoorConfig is what a config says about the door. Without a url the NATS server is embedded.
type DoorConfig struct {
	Embedded bool   `yaml:"embedded" doc:"start a NATS server in this process, which asks for the same token as the HTTP door; true where url is left out"`
	Listen   string `yaml:"listen" doc:"address of the embedded server; 127.0.0.1:4222 where it is left out"`
	Queue    string `yaml:"queue" doc:"queue group: doors of one group share the requests; toolpost where it is left out"`
	Workers  int    `yaml:"workers" doc:"calls at the same time; 256 where it is left out"`
	Connect
}
