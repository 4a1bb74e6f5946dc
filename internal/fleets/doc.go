// Package fleets tests fleets as they run: hubs and workers are processes, each worker on a machine of its own, which is a network
// namespace. They are killed, cut off, drained and restarted while calls go on.
package fleets
