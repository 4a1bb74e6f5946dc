package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"toolpost/bench/attempt"
)

// forkLoop is the minimum that runs each call in a clean Python process: fork, run the function, reap. A line holds the
// number of calls and the number of concurrent children.
const forkLoop = `import gc, json, os, select, sys
from tools.sample import greet

def start(argument):
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(w, json.dumps(greet(json.loads(argument))).encode())
        os._exit(0)
    os.close(w)
    return r, child

def calls(n, most):
    ready, children = select.epoll(), {}
    for left in range(n, 0, -1):
        while len(children) < min(most, left):
            r, child = start('{"name":"Ada"}')
            ready.register(r, select.EPOLLIN)
            children[r] = child
        r = ready.poll(maxevents=1)[0][0]
        answer = json.loads(os.read(r, 65536))
        ready.unregister(r)
        os.close(r)
        os.waitpid(children.pop(r), 0)
    return answer["message"]

gc.collect()
gc.freeze()
for line in sys.stdin:
    print(calls(*map(int, line.split())), flush=True)
`

const (
	warmCallers = 64
	warmEach    = 10 // calls of each caller in a turn
	warmAtOnce  = 16 // concurrent children: the default number of interpreters of a tool
)

// warmLab returns a warm confined call through the whole engine, and n calls of the loop, with atOnce concurrent
// children.
func warmLab(ctx context.Context, l *lab, name string, n, atOnce int) (call, loop func() error) {
	need("python3")
	dir := filepath.Join(l.dir, name)
	files := greeting()
	files["loop.py"] = forkLoop
	h := l.open(ctx, dir, files)
	bare := l.start(ctx, dir, realPython(ctx), "loop.py")
	line := fmt.Sprintf("%d %d\n", n, atOnce)
	return greet(ctx, h, "greeter"), func() error { return bare.turns(1, line, "Hello Ada") }
}

// warmAlone measures how long one caller waits for a warm confined call.
func warmAlone(ctx context.Context, l *lab) row {
	call, loop := warmLab(ctx, l, "alone", 1, 1)
	for range 5 { // until the engine has noticed that there is a caller
		attempt.Check(call())
	}
	m, r := compare(301, clock(call), clock(loop))
	return within(m, time.Millisecond, longer(m, r, ms))
}

// warmCrowd compares the rate of warm confined calls of 64 callers with that of the loop.
func warmCrowd(ctx context.Context, l *lab) row {
	const n = warmCallers * warmEach
	call, loop := warmLab(ctx, l, "crowd", n, warmAtOnce)
	m, r := compare(11, clock(storm(warmCallers, warmEach, call)), clock(loop))
	return ofTheRate(n, m, r, 0.45)
}
