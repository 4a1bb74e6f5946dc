// Package stormfleet lets storms rage over a whole site, in its tests: hubs, workers and a PostgreSQL with a standby, each a process
// on a machine of its own, and callers at every door. A seed says what fails when; what was promised is checked from the outside.
package stormfleet
