package singularity

import (
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A service answers $SRV.PING, $SRV.INFO and $SRV.STATS, so that NATS's own tools find this node and see what it does. Its
// messages are those of package micro. Micro's own service is not used because it measures a handler that returns once the
// answer has been sent; ours run concurrently.
type service struct {
	identity  micro.ServiceIdentity
	started   time.Time
	endpoints []*endpoint
}

// semver is the form of a version that the specification of NATS services demands.
var semver = regex.Lazy(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func newService(o DoorOptions) *service {
	version := strings.TrimPrefix(o.Version, "v")
	if !semver().MatchString(version) {
		version = "0.0.0"
	}
	s := &service{
		identity: micro.ServiceIdentity{
			Name: "toolpost", ID: tool.NewID(), Version: version,
			Metadata: map[string]string{"build": o.Version, "protocol": "singularity"},
		},
		started: time.Now().UTC(),
	}
	for _, e := range endpoints() {
		about := micro.EndpointStats{Name: e[0], Subject: e[1], QueueGroup: o.Queue}
		s.endpoints = append(s.endpoints, &endpoint{stats: about})
	}
	return s
}

// endpoints lists the names and subjects of the door's endpoints.
func endpoints() [][2]string {
	return [][2]string{
		{"file", "tools.file.>"}, {"shell", "tools.shell.>"}, {"code", "tools.code.>"},
		{"execute", subjectExecute}, {"execute-name", prefixExecute + ">"}, {"catalog", subjectCatalog},
	}
}

// Subjects lists the subjects on which the door takes messages, for tests that try each of them.
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
			Name: e.stats.Name, Subject: e.stats.Subject, QueueGroup: e.stats.QueueGroup, Metadata: map[string]string{},
		})
	}
	return info
}

func (s *service) stats() micro.Stats {
	stats := micro.Stats{ServiceIdentity: s.identity, Type: micro.StatsResponseType, Started: s.started}
	for _, e := range s.endpoints {
		stats.Endpoints = append(stats.Endpoints, e.current())
	}
	return stats
}

// monitor answers a control subject.
func (d *desk) monitor(m *nats.Msg) { d.respond(m, "a control request", d.service.reply(m.Subject)) }

// respond answers a message if its reply subject allows it.
func (d *desk) respond(m *nats.Msg, what string, answer any) {
	if !mayAnswer(m.Reply) {
		return
	}
	body, err := strictjson.Marshal(answer)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		d.o.Log.Warn(what+" could not be answered", "subject", m.Subject, "error", err)
	}
}

// An endpoint is a subject that we answer, with its statistics. A request's time includes its time in the queue.
type endpoint struct {
	mu    sync.Mutex
	stats micro.EndpointStats
}

// count records one answered request.
func (e *endpoint) count(problem *tool.Error, received time.Time) {
	took := time.Since(received)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.NumRequests++
	e.stats.ProcessingTime += took
	e.stats.AverageProcessingTime = e.stats.ProcessingTime / time.Duration(e.stats.NumRequests)
	if problem != nil {
		e.stats.NumErrors++
		e.stats.LastError = errorText(problem)
	}
}

func (e *endpoint) current() *micro.EndpointStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.stats
	return &now
}
