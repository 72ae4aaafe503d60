// Command pause does nothing until it is told to end. The node runs it as the first
// process of every pod, to hold the pod's network namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
