package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// environment builds what a command gets to see. Nothing of ours is passed on: our own variables may hold
// secrets. Home is a folder of the command's own, cache one that the caller's commands share.
func (t *Tools) environment(v *verdict, w *workplace, extra map[string]string) []string {
	env := map[string]string{
		"PATH": strings.Join(t.path, ":"), "HOME": w.home, "TMPDIR": w.tmp, "PWD": v.dir,
		"LANG": "C.UTF-8", "TERM": "dumb", "SHELL": "/bin/sh", "USER": "toolpost", "LOGNAME": "toolpost",
		"XDG_CACHE_HOME": w.cache, "PAGER": "cat", "EDITOR": "false", "VISUAL": "false", "NO_COLOR": "1",
		// Go: nothing from the network, no other toolchain, no settings or hooks of a repository.
		"GOENV": "off", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOPATH": w.cache + "/go", "GOFLAGS": "-buildvcs=false -modcacherw", "GOTELEMETRY": "off",
		"npm_config_cache": w.cache + "/npm", "npm_config_update_notifier": "false", "npm_config_ignore_scripts": "true", "npm_config_offline": "true",
		"npm_config_audit": "false", "npm_config_fund": "false",
		"PYTHONNOUSERSITE": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CARGO_NET_OFFLINE": "true",
	}
	if v.network {
		for _, name := range []string{"GOPROXY", "npm_config_offline", "PIP_NO_INDEX", "CARGO_NET_OFFLINE"} {
			delete(env, name)
		}
	}
	maps.Copy(env, gitEnvironment(v, w))
	maps.Copy(env, t.o.Env)
	maps.Copy(env, extra)
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// gitEnvironment keeps git to itself, also where another program starts it: no settings of the machine, no
// hooks, no helpers, no questions. Settings in the environment win over those of a repository.
func gitEnvironment(v *verdict, w *workplace) map[string]string {
	env := map[string]string{
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": w.gitconfig, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat",
		"GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":", "GIT_ASKPASS": "false", "SSH_ASKPASS": "false", "GIT_SSH_COMMAND": "false",
		"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0",
		"GIT_CEILING_DIRECTORIES": strings.Join(w.ceilings, ":"), "GIT_MERGE_AUTOEDIT": "no",
	}
	if v.network {
		env["GIT_ALLOW_PROTOCOL"] = "https"
	}
	settings := [][2]string{
		{"core.hooksPath", "/dev/null"}, {"core.fsmonitor", "false"}, {"core.pager", "cat"}, {"core.editor", ":"}, {"core.askPass", "false"},
		{"core.sshCommand", "false"}, {"core.alternateRefsCommand", ""}, {"core.attributesFile", "/dev/null"},
		{"credential.helper", ""}, {"gpg.program", "false"}, {"gpg.openpgp.program", "false"}, {"gpg.ssh.program", "false"},
		{"gpg.x509.program", "false"}, {"gpg.ssh.defaultKeyCommand", ""}, {"commit.gpgSign", "false"}, {"tag.gpgSign", "false"}, {"tag.forceSignAnnotated", "false"},
		{"log.showSignature", "false"}, {"merge.verifySignatures", "false"}, {"push.gpgSign", "false"}, {"commit.template", ""}, {"init.templateDir", ""},
		{"interactive.diffFilter", ""}, {"submodule.recurse", "false"}, {"fetch.recurseSubmodules", "false"},
		{"status.submoduleSummary", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"}, {"protocol.ext.allow", "never"}, {"core.quotePath", "false"},
	}
	env["GIT_CONFIG_COUNT"] = fmt.Sprint(len(settings))
	for i, s := range settings {
		env[fmt.Sprintf("GIT_CONFIG_KEY_%d", i)], env[fmt.Sprintf("GIT_CONFIG_VALUE_%d", i)] = s[0], s[1]
	}
	return env
}

// badVariable says why a caller may not set a variable, whatever the config says: it would choose what runs.
func badVariable(name string) string {
	if !isVariable(name) {
		return "is not the name of a variable"
	}
	upper := strings.ToUpper(name)
	for _, prefix := range []string{
		"LD_", "DYLD_", "GIT_", "PYTHON", "NODE_", "NPM_", "PERL", "RUBY", "GEM_", "BUNDLE_", "LUA_", "PHP", "GO", "CGO_", "CARGO", "RUST", "JAVA", "JDK_", "MAVEN_",
		"BASH", "ZSH", "GCONV_", "MALLOC_", "GLIBC_", "SSH_", "MAKE", "PIP_", "PYENV", "TOOLPOST", "DOCKER_", "TAR_", "LESS", "MAN", "XDG_", "GCC_", "CMAKE_",
	} {
		if strings.HasPrefix(upper, prefix) {
			return "can choose what a command runs"
		}
	}
	others := []string{
		"PATH", "HOME", "IFS", "ENV", "SHELL", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "EDITOR", "VISUAL", "PAGER", "BROWSER", "TMPDIR", "TERMINFO", "TERMCAP",
		"CC", "CXX", "CPP", "LDFLAGS", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "COMPILER_PATH", "LIBRARY_PATH", "ZDOTDIR", "FPATH", "GREP_OPTIONS", "RIPGREP_CONFIG_PATH",
		"POSIXLY_CORRECT", "LOCPATH", "NLSPATH", "HOSTALIASES", "RESOLV_HOST_CONF", "OPENSSL_CONF", "MAGIC", "AWKPATH", "AWKLIBPATH", "SQLITE_HISTORY", "GZIP", "ZIPOPT", "UNZIP", "XZ_OPT", "XZ_DEFAULTS",
	}
	if slices.Contains(others, upper) {
		return "can choose what a command runs, or where"
	}
	return ""
}

func isVariable(name string) bool {
	return name != "" && !isDigits(name[:1]) && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
