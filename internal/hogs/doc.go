// Package hogs proves, in its tests, that a tool which takes all that it can get takes it from nobody else: real
// programs that fork, fill, spin and flood run behind the walls of a real server, which goes on serving.
package hogs
