package singularity

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A service answers $SRV.PING, $SRV.INFO and $SRV.STATS, so that the tools of NATS find this node and see what it
// does. Its words are those of package micro. Micro's own service is not used because it measures a handler that
// returns when the answer has been sent; ours run side by side.
type service struct {
	identity  micro.ServiceIdentity
	started   time.Time
	endpoints []*endpoint
}

const serviceName = "toolpost"

// semver is what the specification of NATS services asks of a version.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func newService(o DoorOptions) *service {
	version := strings.TrimPrefix(o.Version, "v")
	if !semver.MatchString(version) {
		version = "0.0.0"
	}
	s := &service{
		identity: micro.ServiceIdentity{
			Name: serviceName, ID: tool.NewID(), Version: version,
			Metadata: map[string]string{"build": o.Version, "protocol": "singularity"},
		},
		started: time.Now().UTC(),
	}
	for _, e := range endpoints() {
		s.endpoints = append(s.endpoints, &endpoint{name: e[0], subject: e[1], queue: o.Queue})
	}
	return s
}

// endpoints lists the names and subjects of what can be asked for.
func endpoints() [][2]string {
	return [][2]string{
		{"file", "tools.file.>"}, {"shell", "tools.shell.>"}, {"code", "tools.code.>"},
		{"execute", subjectExecute}, {"execute-name", prefixExecute + ">"}, {"catalog", subjectCatalog},
	}
}

// Subjects lists where the door takes messages, for tests that try each of them.
func Subjects() []string {
	all := []string{subjectCancel, micro.APIPrefix + ".>"}
	for _, e := range endpoints() {
		all = append(all, e[1])
	}
	return all
}

// control lists the subjects of the three verbs: for all services, for those of our name, and for this one.
func (s *service) control() []string {
	var subjects []string
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		root := micro.APIPrefix + "." + verb
		subjects = append(subjects, root, root+"."+s.identity.Name, root+"."+s.identity.Name+"."+s.identity.ID)
	}
	return subjects
}

func (s *service) reply(subject string) any {
	verb, _, _ := strings.Cut(strings.TrimPrefix(subject, micro.APIPrefix+"."), ".")
	switch verb {
	case "PING":
		return micro.Ping{ServiceIdentity: s.identity, Type: micro.PingResponseType}
	case "INFO":
		return s.info()
	}
	return s.stats()
}

func (s *service) info() micro.Info {
	info := micro.Info{
		ServiceIdentity: s.identity, Type: micro.InfoResponseType,
		Description: "Runs tools for AI agents. Requests to " + subjectCatalog + " list them.",
	}
	for _, e := range s.endpoints {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: e.name, Subject: e.subject, QueueGroup: e.queue, Metadata: map[string]string{},
		})
	}
	return info
}

// serviceStats is micro.Stats, with times as whole nanoseconds.
type serviceStats struct {
	micro.ServiceIdentity
	Type      string          `json:"type"`
	Started   time.Time       `json:"started"`
	Endpoints []endpointStats `json:"endpoints"`
}

type endpointStats struct {
	Name                  string `json:"name"`
	Subject               string `json:"subject"`
	QueueGroup            string `json:"queue_group"`
	NumRequests           int    `json:"num_requests"`
	NumErrors             int    `json:"num_errors"`
	LastError             string `json:"last_error"`
	ProcessingTime        int64  `json:"processing_time"`
	AverageProcessingTime int64  `json:"average_processing_time"`
}

func (s *service) stats() serviceStats {
	stats := serviceStats{ServiceIdentity: s.identity, Type: micro.StatsResponseType, Started: s.started}
	for _, e := range s.endpoints {
		stats.Endpoints = append(stats.Endpoints, e.stats())
	}
	return stats
}

// monitor answers a control subject.
func (d *desk) monitor(m *nats.Msg) {
	if !mayAnswer(m.Reply) {
		return
	}
	body, err := strictjson.Marshal(d.service.reply(m.Subject))
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		d.o.Log.Warn("a control request could not be answered", "subject", m.Subject, "error", err)
	}
}

// An endpoint is a subject that we answer, and what happened there.
type endpoint struct {
	name, subject, queue string

	mu        sync.Mutex
	requests  int
	errors    int
	lastError string
	took      time.Duration // all requests together, their time in the queue included
}

// count notes one answered request.
func (e *endpoint) count(problem *tool.Error, came time.Time) {
	took := time.Since(came)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
	e.took += took
	if problem != nil {
		e.errors++
		e.lastError = errorText(problem)
	}
}

func (e *endpoint) stats() endpointStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return endpointStats{
		Name: e.name, Subject: e.subject, QueueGroup: e.queue,
		NumRequests: e.requests, NumErrors: e.errors, LastError: e.lastError,
		ProcessingTime: int64(e.took), AverageProcessingTime: int64(e.took) / int64(max(e.requests, 1)),
	}
}
