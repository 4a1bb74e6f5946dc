package fleet

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/fleet/invite"
	"toolpost/fleet/membership"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A joining is the request of a node that joins.
type joining struct {
	Token string      `json:"token"`
	Name  string      `json:"name"`
	Key   string      `json:"key"` // its public nkey
	Proof []byte      `json:"proof"`
	Link  int         `json:"link"`
	Role  member.Role `json:"role"` // that it wants
}

// A welcome is the answer.
type welcome struct {
	To    string          `json:"to"` // the key of the node that asked: strangers cannot answer it
	Error *tool.Error     `json:"error,omitzero"`
	Pass  membership.Pass `json:"pass"` // without the seed, which the node keeps to itself
}

// Join makes a member of this node, by an invitation for the role, at the first of its hubs that answers.
func Join(ctx context.Context, i invite.Line, name string, role member.Role) (*membership.Pass, error) {
	var failures []error
	for _, hub := range i.Hubs {
		p, err := joinAt(ctx, hub, i, name, role)
		switch {
		case err == nil:
			return p, nil
		case tool.CodeOf(err) != tool.CodeUnavailable:
			return nil, err // another hub would say the same
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func joinAt(ctx context.Context, hub string, i invite.Line, name string, role member.Role) (*membership.Pass, error) {
	tls := i.Trust(hub)
	nc, err := nats.Connect("nats://"+hub, nats.Secure(tls), nats.TLSHandshakeFirst(), nats.UserInfo(joinUser, ""), nats.NoReconnect(),
		nats.Timeout(askWithin), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // LastError has it
	switch {
	case errors.Is(err, invite.ErrForeign):
		return nil, invite.ErrForeign
	case errors.As(err, new(x509.HostnameError)):
		return nil, tool.Errorf(tool.CodeAccessDenied, "the hub at %s shows a certificate for other hosts: %w; use the line as `toolpost fleet token` "+
			"printed it, or have the certificate name this host", hub, err)
	case errors.Is(err, nats.ErrAuthorization):
		return nil, tool.Errorf(tool.CodeUnavailable, "too many nodes ask to join at the hub %s; try again in %v", hub, joinWithin)
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "no hub answers at %s: %w; is `toolpost serve` running there, and may this machine "+
			"reach its port?", hub, err)
	}
	defer nc.Close()
	seed, public, err := membership.NewKey()
	if err != nil {
		return nil, err
	}
	p := membership.Pass{Seed: seed}
	request := joining{Token: i.Token(), Name: name, Key: public, Link: linkVersion, Role: role}
	if request.Proof, err = p.Sign([]byte(i.Token())); err != nil {
		return nil, err
	}
	answer, err := askToJoin(ctx, nc, request)
	if err != nil {
		return nil, errors.Join(err, nc.LastError())
	}
	answer.Pass.Seed = seed
	return &answer.Pass, nil
}

// askToJoin sends the request, and waits for the answer on the one subject that this connection may read.
func askToJoin(ctx context.Context, nc *nats.Conn, request joining) (*welcome, error) {
	id, err := nc.GetClientID()
	if err != nil {
		return nil, err
	}
	reply := subjectJoined + strconv.FormatUint(id, 10)
	sub, err := nc.SubscribeSync(reply)
	if err != nil {
		return nil, err
	}
	body, err := strictjson.Marshal(request)
	if err == nil {
		err = nc.PublishRequest(subjectJoin, reply, body)
	}
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "the hub at %s does not answer: %w", nc.ConnectedAddr(), err)
		}
		var w welcome
		switch err := strictjson.Unmarshal(m.Data, &w); {
		case err != nil || w.To != request.Key:
			continue
		case w.Error != nil:
			return nil, w.Error
		}
		return &w, nil
	}
}

// receive answers a request to join. The server does not check the subject of the answer, so this does.
func (n *Node) receive(m *nats.Msg) {
	var j joining
	if !strings.HasPrefix(m.Reply, subjectJoined) || len(m.Data) > maxJoining || strictjson.Unmarshal(m.Data, &j) != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), askWithin)
	defer stop()
	w := welcome{To: j.Key}
	member, err := n.enrol(ctx, j)
	if err != nil {
		w.Error = tool.AsError(err)
		n.env.Log.Warn("a node could not join", "error", w.Error.Message)
	} else {
		w.Pass = membership.Pass{ID: member.ID, Name: member.Name, Role: member.Role, CA: n.pass.CA, Named: n.pass.Named, Hubs: n.hubAddresses()}
		if member.Role == roleHub {
			w.Pass.CAKey = n.pass.CAKey
		}
		n.env.Log.Info("a node joined the fleet", "node", member.Name, "role", member.Role)
	}
	if body, err := strictjson.Marshal(w); err == nil {
		_ = m.Respond(body)
	}
	if err != nil {
		tool.Sleep(ctx, guessEvery)
	}
}

// guessEvery bounds what a stranger who guesses tokens costs the store and the log, and how long a node that joins waits behind it.
const guessEvery = 5 * time.Millisecond

func (n *Node) enrol(ctx context.Context, j joining) (none member.Member, err error) {
	if why := incompatible(j.Link); why != "" {
		return none, tool.Errorf(tool.CodeUnsupported, "this node cannot join: %s", why)
	}
	if !proves(j.Key, j.Proof, []byte(j.Token)) {
		return none, tool.Errorf(tool.CodeAccessDenied, "the node has not proven that it has its key")
	}
	if err := member.CheckName(j.Name); err != nil {
		return none, err
	}
	return n.env.Register.Enrol(ctx, invite.Digest(j.Token), member.Member{ID: newID(), Name: j.Name, Role: j.Role, Key: j.Key})
}

// newID makes the id of a node: short, since it is a part of every subject.
func newID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// Found makes the first hub of a new fleet, with an authority of its own, or with that of o.
func Found(ctx context.Context, register member.Register, name, state string, o Options) (*membership.Pass, error) {
	if p, err := membership.Load(state); p != nil || err != nil {
		return nil, errors.Join(err, tool.Errorf(tool.CodeConflict, "this machine belongs to a fleet already; `toolpost fleet` shows it"))
	}
	p := &membership.Pass{ID: newID(), Name: name, Role: roleHub, Named: o.TLS != certs.Files{}}
	host, _ := o.advertised()
	err := member.CheckName(name)
	if err == nil {
		err = p.Certify(o.TLS, host)
	}
	if err != nil {
		return nil, err
	}
	var public string
	if p.Seed, public, err = membership.NewKey(); err != nil {
		return nil, err
	}
	if err := register.Found(ctx, member.Member{ID: p.ID, Name: p.Name, Role: roleHub, Key: public}); err != nil {
		return nil, err
	}
	return p, p.Save(state)
}
