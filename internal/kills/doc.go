// Package kills proves, in its tests, that nothing that was acknowledged is lost: a real server is killed at random
// moments under load, again and again, and its stored state is compared with the answers to its callers.
package kills
