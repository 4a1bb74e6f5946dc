package connection

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// idPrefix begins the ids of questions. An id proves nothing: with one, a call waits for the connections of its caller.
const idPrefix = "con_"

// IsID reports whether a text has the form of the id of such a question.
func IsID(text string) bool { return strings.HasPrefix(text, idPrefix) && len(text) < 40 }

// How long a call waits for a person who has opened the link, and how often it looks whether another program has connected it.
const (
	patience  = 2 * time.Minute
	lookAgain = 500 * time.Millisecond
	// maxWaiting bounds how many calls of one caller wait, since a caller may make up ids. The others are asked again at once.
	maxWaiting = 8
)

// enter reports whether another call of a caller may wait; if so, leave ends that.
func (c *Connections) enter(caller string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[caller] >= maxWaiting {
		return false
	}
	c.waiting[caller]++
	return true
}

func (c *Connections) leave(caller string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[caller]--; c.waiting[caller] == 0 {
		delete(c.waiting, caller)
	}
}

// For is an engine.Stage: it gives calls the credentials of their callers. It runs behind approval, so that no person is
// asked to connect an account for a call that is refused, and before idempotency, whose keys are for calls that run.
func (c *Connections) For(spec *tool.Spec) tool.Middleware {
	if len(spec.Connections) == 0 {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
			return c.pass(ctx, call, out, next)
		})
	}
}

func (c *Connections) pass(ctx context.Context, call *tool.Call, out tool.Sink, next tool.Handler) (*tool.Result, error) {
	needed, err := c.needs(call.Spec)
	if err == nil && call.FromHub {
		return c.lent(ctx, call, out, next, needed)
	}
	if err = cmp.Or(err, c.apart(call.Caller)); err != nil {
		return nil, tool.BeforeRun(err)
	}
	answered := IsID(call.Resume)
	if answered {
		if err := c.accepted(call); err != nil {
			return nil, tool.BeforeRun(err)
		}
	}
	missing, err := c.lacks(ctx, call, needed, answered)
	if err != nil {
		return nil, tool.BeforeRun(err)
	}
	if len(missing) > 0 {
		return c.ask(call, missing)
	}
	if call.Watch.By != nil {
		call.Watch.By.Learned()
	}
	own := *call
	if answered { // it is ours: no stage further in has asked
		own.Resume, own.Answers = "", nil
	}
	var uses uses
	for _, o := range needed {
		own.Credentials = append(own.Credentials, c.credential(o, call, &uses))
	}
	r, err := next.Invoke(ctx, &own, out)
	call.Record.Connected(uses.all())
	return r, err
}

// needs returns the connections that a tool uses. One of another node gets those that the config lends to its source: a node says
// itself what its tools use, and might say too much.
func (c *Connections) needs(spec *tool.Spec) (all []*Options, err error) {
	for _, name := range spec.Connections {
		o := c.now.Load().named[name]
		switch {
		case o == nil:
			return nil, tool.Errorf(tool.CodeAccessDenied, "%s uses the connection %s, which the config of this node does not have", spec.Name, name)
		case spec.Digest != "" && !slices.Contains(o.Remote, spec.Source):
			return nil, tool.Errorf(tool.CodeAccessDenied, "%s runs on another node and uses the connection %s, which stays on this one: to send it "+
				"there, sealed for each call, give the connection `remote: [%s]`", spec.Name, name, spec.Source)
		}
		all = append(all, o)
	}
	return all, nil
}

// lent runs a call of a hub with the keys that the hub has sent for it, if they may go to the same hosts here.
func (c *Connections) lent(ctx context.Context, call *tool.Call, out tool.Sink, next tool.Handler, needed []*Options) (*tool.Result, error) {
	own := *call
	own.Credentials = nil
	var uses uses
	for _, o := range needed {
		one := o.credential()
		i := slices.IndexFunc(call.Credentials, func(k *tool.Credential) bool { return k.Connection == o.Name })
		switch {
		case i < 0:
			return nil, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "%s uses the connection %s, which its hub has not sent", call.Tool, o.Name))
		case !call.Credentials[i].SameHosts(one):
			return nil, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "the connection %s of %s has other hosts, methods or paths on its node than "+
				"at the hub: give both the same", o.Name, call.Tool))
		}
		one.Value, one.Used = call.Credentials[i].Value, func(host string) { uses.add(o.Name + " " + host) }
		value, err := one.Value(ctx)
		if err != nil {
			return nil, tool.BeforeRun(err)
		}
		hide(call, o, value)
		own.Credentials = append(own.Credentials, one)
	}
	r, err := next.Invoke(ctx, &own, out)
	call.Record.Connected(uses.all())
	return r, err
}

// credential returns a connection for one call.
func (c *Connections) credential(o *Options, call *tool.Call, u *uses) *tool.Credential {
	one := o.credential()
	one.Again = ": " + c.how(o, call.Caller.ID)
	one.Value = func(ctx context.Context) (string, error) {
		if o.Grant == machine { // no caller chooses this one
			value, err := c.value(ctx, o, "")
			c.env.Redactor.Add("connection "+o.Name, value)
			return value, err
		}
		value, err := c.value(ctx, o, call.Caller.ID)
		hide(call, o, value)
		return value, err
	}
	one.Used = func(host string) { u.add(o.Name + " " + host) }
	return one
}

// hide removes a value from what a call says, and from its record. Calls of others are not changed: a caller chooses its keys.
func hide(call *tool.Call, o *Options, value string) {
	secret.Of(call).Add("connection "+o.Name, value)
}

// uses are the connections that a call has used, with their hosts, without repetitions.
type uses struct {
	mu   sync.Mutex
	seen map[string]bool
}

// maxUses bounds what a record has of them: a call can have many hosts if the config says *.
const maxUses = 32

func (u *uses) add(use string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = map[string]bool{}
	}
	if len(u.seen) < maxUses {
		u.seen[use] = true
	}
}

func (u *uses) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.seen))
}

// lacks returns the connections that a call needs and its caller does not have. A call whose caller has opened the link waits for them.
func (c *Connections) lacks(ctx context.Context, call *tool.Call, needed []*Options, wait bool) (missing []*Options, err error) {
	if wait = wait && c.enter(call.Caller.ID); wait {
		defer c.leave(call.Caller.ID)
	}
	until := c.env.now().Add(patience)
	for {
		changed := c.changes.Changed()
		missing = nil
		for _, o := range needed {
			if o.Grant == machine {
				continue
			}
			r, err := c.env.Store.Find(ctx, call.Caller.ID, o.Name)
			if err != nil {
				return nil, err
			}
			var h held
			if len(r.Sealed) > 0 {
				if h, err = c.unseal(o, r); err != nil {
					return nil, err
				}
			}
			if h.Access == "" {
				missing = append(missing, o)
				continue
			}
			hide(call, o, h.Access) // a tool may know it by another way, and its caller may have written it into the arguments
		}
		if len(missing) == 0 || !wait || !c.env.now().Before(until) {
			return missing, nil
		}
		select {
		case <-changed:
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return nil, tool.Ended(ctx)
		}
	}
}

// accepted returns why a call cannot go on: its caller did not want to open the link, or could not.
func (c *Connections) accepted(call *tool.Call) error {
	var answers map[string]struct {
		Action string          `json:"action"`
		Error  json.RawMessage `json:"error"`
	}
	if len(call.Answers) > 0 && strictjson.Unmarshal(call.Answers, &answers) != nil {
		return tool.Errorf(tool.CodeInvalidInput, "the answers are for links: {\"NAME\": {\"action\": \"accept\"}}")
	}
	for name, a := range answers {
		switch {
		case len(a.Error) > 0:
			return tool.Errorf(tool.CodeAccessDenied, "%s needs the connection %s, and this client cannot show a link: %s", call.Tool, name,
				c.how(cmp.Or(c.now.Load().named[name], &Options{Name: name}), call.Caller.ID)).Because(Missing)
		case a.Action != tool.Accept:
			return tool.Errorf(tool.CodeCancelled, "%s was not run: the connection %s was declined", call.Tool, name).Because("not_answered")
		}
	}
	return nil
}

// ask ends a call with the question to connect what is missing, or with an error if there is no link to show, or no person to see it.
func (c *Connections) ask(call *tool.Call, missing []*Options) (*tool.Result, error) {
	var list []tool.Need
	var words []string
	for _, o := range missing {
		text := fmt.Sprintf("%s uses your %s account, which is not connected yet", call.Tool, o.Name)
		if o.Key == pasted {
			text = fmt.Sprintf("%s uses your key for %s, which you have not given yet", call.Tool, o.Name)
		}
		ways := []string{c.how(o, call.Caller.ID)}
		if at := c.console(); at != "" {
			ticket, err := c.newLink(linkPurpose, link{Caller: call.Caller.ID, Name: o.Name})
			if err != nil {
				return nil, tool.BeforeRun(err)
			}
			values := url.Values{"name": {o.Name}, "link": {ticket}}
			if strings.HasPrefix(call.Caller.ID, tool.AgentPrefix) { // whom an operator acts for
				values.Set("caller", call.Caller.ID)
			}
			page := at + "/#/connections?" + values.Encode()
			params, _ := strictjson.Marshal(map[string]string{"url": page}) // a string
			list = append(list, tool.Need{Key: o.Name, Kind: tool.NeedLink, Message: text, Params: params})
			ways = append([]string{"open " + page}, ways...)
		}
		words = append(words, text+": "+strings.Join(ways, ", or "))
	}
	message := strings.Join(words, "; ")
	if len(list) == 0 || call.Background || call.Parent != "" || call.Resume != "" && !IsID(call.Resume) {
		return nil, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "%w", errors.New(message)).Because(Missing))
	}
	return &tool.Result{Ask: &tool.Ask{ID: idPrefix + rand.Text(), Kind: tool.AskConnection, Message: message, Needs: list}}, nil
}
