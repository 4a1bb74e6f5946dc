// Package hogs proves, in its tests, that a tool that takes all the resources it can get takes them from no other tool:
// real programs that fork, fill, spin and flood run behind the walls of a real server, which continues to serve.
package hogs
