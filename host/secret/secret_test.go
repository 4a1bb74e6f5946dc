package secret_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/config"
	"toolpost/host/process"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const canary = "canary-7f3Q/+zz"

func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	kit.OK(t, os.WriteFile(path, []byte(text), mode))
	kit.OK(t, os.Chmod(path, mode))
}

func TestASecretComesFromTheEnvironmentAFileOrACommand(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	t.Setenv("SECRET_TEST", canary)
	write(t, dir, "line", canary+"\n", 0o600)
	write(t, dir, "two", canary+"\n\n", 0o400)
	write(t, dir, "dos", canary+"\r\n", 0o600)
	write(t, dir, "most", strings.Repeat("x", secret.MaxSize)+"\n", 0o600)
	for name, c := range map[string]struct {
		from secret.From
		want string
	}{
		"env":      {secret.From{Env: "SECRET_TEST"}, canary},
		"line":     {secret.From{File: "line"}, canary},
		"absolute": {secret.From{File: filepath.Join(dir, "line")}, canary},
		"two":      {secret.From{File: "two"}, canary + "\n"},
		"dos":      {secret.From{File: "dos"}, canary},
		"most":     {secret.From{File: "most"}, strings.Repeat("x", secret.MaxSize)},
		"command":  {secret.From{Command: []string{"cat", "line"}}, canary},
		"argv":     {secret.From{Command: []string{"printf", "%s", "$(echo $HOME)"}}, "$(echo $HOME)"},
		"built":    {secret.From{Command: []string{"sh", "-c", "echo none${SECRET_TEST}none"}}, "nonenone"},
	} {
		v := secret.Open(t.Context(), dir, map[string]secret.From{name: c.from}, nil)
		if got, err := v.Secret(name); got != c.want || err != nil {
			t.Errorf("%s: %.40q, %v", name, got, err)
		}
	}
}

func TestBadSecretFailsAloneWithoutRevealingItsValue(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	t.Setenv("SECRET_SHORT", "pin12")
	t.Setenv("SECRET_GOOD", canary)
	write(t, dir, "shared", canary, 0o640)
	write(t, dir, "world", canary, 0o602)
	write(t, dir, "long", strings.Repeat(canary, secret.MaxSize/len(canary)+1), 0o600)
	write(t, dir, "binary", canary+"\xff", 0o600)
	write(t, dir, "nul", canary+"\x00", 0o600)
	kit.OK(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	bad := map[string]struct {
		from secret.From
		want string
	}{
		"unset":    {secret.From{Env: "SECRET_NOT_SET"}, "not set"},
		"short":    {secret.From{Env: "SECRET_SHORT"}, "shorter than 6 bytes"},
		"missing":  {secret.From{File: "missing"}, "no such file"},
		"shared":   {secret.From{File: "shared"}, "chmod 600"},
		"world":    {secret.From{File: "world"}, "chmod 600"},
		"folder":   {secret.From{File: "."}, "not a regular file"},
		"pipe":     {secret.From{File: "pipe"}, "not a regular file"},
		"long":     {secret.From{File: "long"}, "longer than 65536 bytes"},
		"binary":   {secret.From{File: "binary"}, "not text"},
		"nul":      {secret.From{File: "nul"}, "not text"},
		"fails":    {secret.From{Command: []string{"sh", "-c", "cat nul shared; cat shared >&2; exit 3"}}, "exit status 3"},
		"killed":   {secret.From{Command: []string{"sh", "-c", "cat shared; kill -9 $$"}}, "SIGKILL"},
		"flood":    {secret.From{Command: []string{"sh", "-c", "while :; do cat long; done"}}, "longer than 65536 bytes"},
		"noone":    {secret.From{Command: []string{"no-such-program"}}, "no-such-program"},
		"two":      {secret.From{Env: "SECRET_GOOD", File: "shared"}, "comes from one place"},
		"nowhere":  {secret.From{}, "comes from one place"},
		"bad-name": {secret.From{Env: "SECRET_GOOD"}, "not a valid name of a variable"},
	}
	from := map[string]secret.From{"GOOD": {Env: "SECRET_GOOD"}}
	for name, b := range bad {
		from[name] = b.from
	}
	v := secret.Open(t.Context(), dir, from, nil)
	if got, err := v.Secret("GOOD"); got != canary || err != nil {
		t.Errorf("the good one: %q, %v", got, err)
	}
	for name, b := range bad {
		got, err := v.Secret(name)
		if got != "" || tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), b.want) || !strings.Contains(err.Error(), "secret "+name) {
			t.Errorf("%s: %q, %v", name, got, err)
			continue
		}
		if text := fmt.Sprintf("%+v %#v", err, errors.Unwrap(err)); strings.Contains(text, canary) || strings.Contains(text, "pin12") {
			t.Errorf("%s: its error tells the value: %s", name, text)
		}
	}
	kit.Equal(t, len(v.Names()), len(from), v.Names())
}

func TestACommandThatHangsEndsWithTheContext(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	kit.OK(t, syscall.Mkfifo(filepath.Join(dir, "started"), 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		_, _ = os.ReadFile(filepath.Join(dir, "started")) // it runs
		cancel(errors.New("enough"))
	}()
	v := secret.Open(ctx, dir, map[string]secret.From{"A": {Command: []string{"sh", "-c", "echo " + canary + "; echo >started; exec sleep 1000"}}}, nil)
	kit.Fails(t, kit.Err(v.Secret("A")), "enough")
}

func TestAnUnknownSecretIsAnErrorThatNamesTheKnown(t *testing.T) {
	t.Setenv("SECRET_TEST", canary)
	for _, v := range []*secret.Vault{nil, secret.Open(t.Context(), "", map[string]secret.From{"KNOWN": {Env: "SECRET_TEST"}}, nil)} {
		_, err := v.Secret("OTHER")
		if err == nil || !strings.Contains(err.Error(), "no secret OTHER") || v != nil && !strings.Contains(err.Error(), "known are KNOWN") {
			t.Error(err)
		}
	}
}

func TestKeyUsedAsANameIsNotRevealed(t *testing.T) {
	t.Setenv("SECRET_TEST", canary)
	v := secret.Open(t.Context(), "", map[string]secret.From{"KNOWN": {Env: "SECRET_TEST"}}, nil)
	for _, key := range []string{
		"sk-proj-abcdefghijklmnop", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "AKIAIOSFODNN7EXAMPLE", "0123456789abcdef",
		"k1k1k1k1", strings.Repeat("x", 41),
	} {
		_, err := v.Secret(key)
		if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "known are KNOWN") {
			t.Errorf("a key that was taken for a name: %v", err)
		}
	}
	for _, name := range []string{"OTHER", "shop_key", "KEY_2"} {
		kit.Fails(t, kit.Err(v.Secret(name)), "there is no secret "+name+";", name)
	}
}

func TestAVaultIsPrintedWithoutItsValues(t *testing.T) {
	v := vault(t, map[string]string{"KNOWN": canary})
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		text := fmt.Sprintf(format+" "+format, v, v.Redactor())
		if strings.Contains(text, canary) || strings.Contains(text, "63616e617279") || !strings.Contains(text, "KNOWN") {
			t.Error(text)
		}
	}
}

func TestSameComparesSecretsOfTwoVaults(t *testing.T) {
	a, b := vault(t, map[string]string{"A": canary, "B": canary}), vault(t, map[string]string{"A": canary, "B": canary + "2"})
	if !a.Same(b, "A") || a.Same(b, "B") || a.Same(nil, "A") || !a.Same(a, "C") {
		t.Error("not as it is")
	}
}

func TestToolGetsDeclaredAndAllowedSecrets(t *testing.T) {
	v := vault(t, map[string]string{"A": canary, "B": canary + "2"})
	for name, c := range map[string]struct {
		from           secret.Source
		names, allowed []string
		want           string
	}{
		"all":            {v, []string{"A", "B"}, nil, "A=" + canary + " B=" + canary + "2"},
		"one":            {v, []string{"A", "B", "B"}, []string{"B", "C"}, "B=" + canary + "2"},
		"none allowed":   {v, []string{"A", "B"}, []string{}, ""},
		"none declared":  {v, nil, []string{"A"}, ""},
		"no vault":       {nil, []string{"A"}, nil, "no secret A"},
		"unknown":        {v, []string{"A", "C"}, nil, "no secret C"},
		"not to be had":  {v, []string{"A", "C"}, []string{"A"}, "A=" + canary},
		"nothing wanted": {nil, nil, nil, ""},
		"another name":   {v, []string{"X=A", "A", "Y=B"}, []string{"A"}, "X=" + canary + " A=" + canary},
		"no variable":    {v, []string{"x y=A"}, nil, "cannot be the name of a variable"},
		"no name":        {v, []string{"X="}, nil, "no secret "},
	} {
		var cmd process.Command
		_, err := secret.Grant{Secrets: c.names, Vault: c.from}.Give(&cmd, c.allowed)
		got := strings.Join(cmd.Env, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestADescriptorHasTheValueAndCannotBeChanged(t *testing.T) {
	v := vault(t, map[string]string{"A": canary, "B": strings.Repeat("b", secret.MaxSize)})
	var cmd process.Command
	_, err := secret.Grant{SecretFiles: []string{"B", "A"}, Vault: v}.Give(&cmd, nil)
	files := cmd.Files
	if err != nil || strings.Join(cmd.Env, " ") != "B_FD=3 A_FD=4" || len(files) != 2 {
		t.Fatal(cmd.Env, err)
	}
	for i, want := range []string{strings.Repeat("b", secret.MaxSize), canary} {
		got, err := io.ReadAll(files[i])
		if string(got) != want || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if _, err := files[i].WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EPERM) {
			t.Errorf("it can be written: %v", err)
		}
		kit.Check(t, files[i].Close())
	}
	kit.Fails(t, kit.Err((secret.Grant{SecretFiles: []string{"A", "C"}, Vault: v}).Give(&cmd, nil)),
		"", "a secret that is not there was handed over")
}

func TestTheSectionIsReadWithThePlaceOfEachFault(t *testing.T) {
	for text, want := range map[string]string{
		"secrets: {A: {env: X}, B_2: {file: x}, c: {command: [a, b]}}": "",
		"secrets:":                            "",
		"secrets: {A: {env: X, file: y}}":     ":1:14: a secret comes from one place",
		"secrets: {A: {}}":                    "comes from one place",
		"secrets: {A: }":                      ":1:11: the secret A has no source",
		"secrets: {A: {evn: X}}":              `did you mean "env"`,
		"secrets: {A: {command: ls -l}}":      "expected a list",
		"secrets: {A: value}":                 "expected a mapping",
		"secrets: [A]":                        "expected a mapping",
		"secrets: {A-1: {env: X}}":            `:1:11: secret name "A-1"`,
		"secrets:\n  1A: {env: X}":            `:2:3: secret name "1A"`,
		"secrets: {A: {env: X}, A: {env: Y}}": "A",
	} {
		var from map[string]secret.From
		c, err := config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text))
		if err == nil {
			err = c.Secrets.Decode(&from)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// vault returns a vault of secrets with these values.
func vault(t testing.TB, values map[string]string) *secret.Vault {
	t.Helper()
	dir := t.TempDir()
	from := map[string]secret.From{}
	for name, value := range values {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600))
		from[name] = secret.From{File: name}
	}
	v := secret.Open(t.Context(), dir, from, nil)
	for _, name := range v.Names() {
		kit.Must(v.Secret(name))(t)
	}
	return v
}

func TestAKeyThatCouldNotBeReadIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		k := secret.NewKeyed(func() ([]byte, error) {
			if requests++; requests < 3 {
				return nil, errors.New("the store is away")
			}
			return []byte("the key"), nil
		})
		for at, want := range []int{1, 1, 2, 3, 3} { // calls do not all wait for a store that is away
			if at >= 2 {
				time.Sleep(time.Second)
			}
			if _, err := k.Sum("a purpose"); requests != want || (err == nil) != (want == 3) {
				t.Errorf("call %d: %d requests, %v", at, requests, err)
			}
		}
	})
}
