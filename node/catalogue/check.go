package catalogue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	healthtools "toolpost/builtin/health"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine/audit"
	"toolpost/host/spawn"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// SourceProblems finds, without starting a program or asking a server, mistakes in the secrets and the sources of a config.
func (c *Catalogue) SourceProblems(cfg *config.Config) (found []config.Problem) {
	note := func(about string, err error) {
		if err != nil {
			found = append(found, config.Problem{About: about, Err: c.env.Redactor.Error(err)})
		}
	}
	c.mu.Lock()
	from := c.secrets
	c.mu.Unlock()
	for _, s := range c.Secrets() {
		note("secret "+s.Name, cmp.Or(s.Err, from[s.Name].Links(cfg.Dir)))
	}
	for _, src := range cfg.Sources {
		about := "source " + src.Name
		note(about, undefinedSecrets(src, slices.Sorted(maps.Keys(from))))
		claim, unreadable := c.readClaim(src)
		if !c.isOpen(src.Name) {
			note(about, unreadable)
		}
		note(about, spawn.Missing(src))
		note(about, c.checker.Now().Guard(claim))
	}
	return found
}

// Endangers returns why another source of the config cannot be opened beside the one of this name: that one may write the folder of
// the other's code.
func (c *Catalogue) Endangers(name string) error {
	var l offlimits.List
	for _, src := range c.env.Config.Sources {
		if src.Name == name {
			l.Add(c.claim(src))
		}
	}
	for _, src := range c.env.Config.Sources {
		if err := l.Guard(c.claim(src)); err != nil {
			return tool.Errorf(tool.CodeOf(err), "source %q could no longer be used: %s", src.Name, message(err))
		}
	}
	return nil
}

// SourceWarnings finds sources whose programs can replace their own code, secrets that are written in the file, and sources
// without tools.
func (c *Catalogue) SourceWarnings() (found []config.Problem) {
	secret := func(name string) bool { return audit.SpeaksOfSecrets(name, nil) }
	for _, src := range c.env.Config.Sources {
		for _, err := range src.InClear(secret) {
			found = append(found, config.Problem{About: "source " + src.Name, Err: err})
		}
		if home := c.claim(src).Own(); home != "" {
			found = append(found, config.Problem{About: "source " + src.Name, Err: fmt.Errorf("walls.write names %s, which its "+
				"program lies in or runs in: what a call writes there, the next one may run; name a folder in it, such as "+
				"./data", home)})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		if _, lists := s.runner.(tool.Source); lists && !s.waits && len(s.specs) == 0 {
			found = append(found, config.Problem{About: "source " + s.Name, Err: errors.New("it has no tools: is the folder or " +
				"the server that it names the right one?")})
		}
	}
	return found
}

// connects reports whether opening a source starts a program or sends a request to a server.
func (c *Catalogue) connects(src config.Source) bool {
	p, err := c.protocol(src.Protocol)
	return err == nil && p.Connects && !local(p, src)
}

// Unopened lists the sources that were not opened, see Options.Offline.
func (c *Catalogue) Unopened() (left []Status) {
	for _, src := range c.env.Config.Sources {
		if !c.isOpen(src.Name) {
			left = append(left, Status{Name: src.Name, Protocol: src.Protocol})
		}
	}
	return left
}

func (c *Catalogue) isOpen(name string) bool {
	return slices.ContainsFunc(c.Sources(), func(s Status) bool { return s.Name == name })
}

// undefinedSecrets returns an error if the programs of a source should get a secret that the config does not have.
func undefinedSecrets(src config.Source, known []string) error {
	var o struct {
		Secrets     []string `yaml:"secrets"`
		SecretFiles []string `yaml:"secret_files"`
	}
	if err := src.Peek(&o); err != nil {
		return nil // opening the source reports it
	}
	for _, text := range slices.Concat(o.Secrets, o.SecretFiles) {
		_, name, renamed := strings.Cut(text, "=")
		if !renamed {
			name = text
		}
		if !slices.Contains(known, name) {
			return fmt.Errorf("it gets the secret %q, which the section secrets does not have%s", name, nearest.Hint(name, known))
		}
	}
	return nil
}

// Health describes every source to an operator.
func (c *Catalogue) Health(ctx context.Context, p tool.Principal) []healthtools.Source {
	tools, broken := map[string]int{}, map[string][]string{}
	for spec, why := range c.inside.Specs(ctx, p) {
		switch {
		case spec.Name == "": // its source reports why
		case why == nil:
			tools[spec.Source]++
		default:
			broken[spec.Source] = append(broken[spec.Source], spec.Name+" cannot be called: "+message(why))
		}
	}
	held := map[string]int{}
	for _, h := range c.engine.Held() {
		held[h.Now.Source]++
	}
	list := []healthtools.Source{}
	for _, s := range c.Sources() {
		one := healthtools.Source{
			Name: s.Name, Protocol: s.Protocol, State: healthtools.StateOpen, Since: s.Since, Tools: tools[s.Name],
			Held: held[s.Name], Workers: s.Workers, Unavailable: len(broken[s.Name]),
		}
		switch {
		case s.Opening:
			one.State, one.Error = healthtools.StateOpening, message(s.Err)
		case s.Err != nil:
			one.State, one.Error = healthtools.StateFailed, message(s.Err)
		case s.Stale != nil:
			one.Error = "its changed files are not used: " + message(s.Stale)
		case s.Lacks != nil:
			one.Error = message(s.Lacks)
		case one.Unavailable > 0:
			one.Error = broken[s.Name][0]
		}
		list = append(list, one)
	}
	return list
}
