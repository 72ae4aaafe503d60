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
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"context"

	genericapiserver "k8s.io/apiserver/pkg/server"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's and Helm's credential plugins.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	// Only the plugins that ../src/cluster/dns.rs configures: the stock list also
	// compiles the SDKs of three clouds, four minutes of a cold build.
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

// helmVersion is set by the linker; Helm keeps its own in an internal package.
var programs = map[string]func() int{
	"kube-apiserver": func() int {
		return cli.Run(apiserver.NewAPIServerCommand())
	},
	"kube-controller-manager": func() int {
		return cli.Run(controllermanager.NewControllerManagerCommand())
	},
	"kube-scheduler": func() int {
		return cli.Run(scheduler.NewSchedulerCommand())
	},
	"kubelet":    func() int { return cli.Run(kubelet.NewKubeletCommand(signals())) },
	"kube-proxy": func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kubectl": func() int {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		return 0
	},
	"helm":    runHelm,
	"etcd":    func() int { etcdmain.Main(os.Args); return 0 },
	"coredns": func() int { coremain.Run(); return 0 },
}

func main() {
	// CoreDNS runs plugins in the order of this list, whatever the Corefile's order.
	dnsserver.Directives = []string{
		"reload", "errors", "health", "ready", "cache", "kubernetes", "forward",
	}
	if len(os.Args) < 2 {
		usage()
	}
	name := os.Args[1]
	run, known := programs[name]
	if !known {
		usage()
	}
	os.Args = slices.Concat([]string{name}, os.Args[2:])
	os.Exit(run())
}

func usage() {
	names := []string{}
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: toolcrib-kube PROGRAM ARGS...\nprograms: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}

func signals() context.Context { return genericapiserver.SetupSignalContext() }

func runHelm() int {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		slog.Error("helm", slog.Any("error", err))
		return 1
	}
	if err := command.Execute(); err != nil {
		return 1
	}
	return 0
}

var _ *cobra.Command
