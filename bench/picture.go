package main

// The curves of growth.
const (
	curveTools    = "tools"
	curveSessions = "sessions"
	curveRecord   = "rows"
	curveOutput   = "outputs"
)
