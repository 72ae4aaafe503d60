// Command kstatus computes the health of Kubernetes objects as GitOps tools do, by the library kstatus.
//
// It reads objects as JSON from standard input, one after the other, and prints a line for each: a JSON object
// with `status` (Current, InProgress, Failed, Terminating, Unknown) and `message`.
//
// Helm 3 is built from the same module, as a tool of go.mod, so its version is pinned there.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

type health struct {
	Status  status.Status `json:"status"`
	Message string        `json:"message"`
}

func run(in io.Reader, out io.Writer) error {
	objects, lines := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var raw json.RawMessage
		if err := objects.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// Reads numbers as the Kubernetes client does: the library compares generations as integers.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		if err := lines.Encode(health{result.Status, result.Message}); err != nil {
			return err
		}
	}
}
