// Package kills proves, in its tests, that nothing that was acknowledged is lost: a real server is killed at random
// moments under load, again and again, and what it kept is held against what its callers were told.
package kills
