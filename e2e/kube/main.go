// Command toolcrib-kube is every program that a one-node Kubernetes cluster runs, in
// one static binary that acts by its first argument.
//
// One binary because the programs share most of their code: built apart they take
// several times the compile time and disk. It is built from Go modules so that a
// machine needs the Go proxy and no download of binaries.
//
// What is not here: containerd and runc (from the distribution), any configuration
// (../src/cluster writes it), and the version numbers, which the linker sets from the
// versions in go.mod: see ../src/cluster/binary.rs.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// What the programs' own main packages register.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	// Only the plugins that the cluster's Corefile names: the stock list also compiles
	// the SDKs of three clouds, four minutes of a cold build.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

// Each returns the program's exit status.
var programs = map[string]func() int{
	"coredns":                 runCoreDNS,
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"helm":                    runHelm,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	if len(os.Args) >= 2 {
		if run, known := programs[os.Args[1]]; known {
			// The program sees its own name first, as if it had been called by it.
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	names := slices.Sorted(maps.Keys(programs))
	fmt.Fprintf(os.Stderr, "usage: toolcrib-kube PROGRAM ARGS...\nprograms: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}

func runCoreDNS() int {
	// Plugins run in the order of this list, whatever the Corefile's order.
	dnsserver.Directives = []string{"bind", "errors", "ready", "cache", "kubernetes", "template"}
	coremain.Run()
	return 0
}

func runHelm() int {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	if err := command.Execute(); err != nil {
		var failed helm.CommandError
		if errors.As(err, &failed) {
			return failed.ExitCode
		}
		return 1
	}
	return 0
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		// Prints as kubectl does, and exits with the status the error asks for.
		util.CheckErr(err)
	}
	return 0
}
