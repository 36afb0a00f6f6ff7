// A candidate with client-go's own elector: leads for a moment, releases, stands again. Writes a line when it begins to lead
// and one when it ends, to the file that all candidates share. With "-" for the file it stands once, says so when it leads,
// and releases when it is told to end.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func witness(path, what string) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	defer file.Close()
	_, err = fmt.Fprintln(file, what)
	must(err)
}

// Usage: rival KUBECONFIG LEASE ID WITNESS
func main() {
	kubeconfig, name, id, path := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err)
	config.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(config)
	must(err)
	once := path == "-"
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if once {
			ctx, cancel = signal.NotifyContext(context.Background(), syscall.SIGTERM)
		}
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: "default"},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: id},
			},
			ReleaseOnCancel: true,
			LeaseDuration:   6 * time.Second,
			RenewDeadline:   4 * time.Second,
			RetryPeriod:     time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					if once {
						fmt.Println(id, "leads")
						return
					}
					witness(path, "begin "+id)
					select {
					case <-ctx.Done():
					case <-time.After(1500 * time.Millisecond):
					}
					// Written before the release: client-go releases when this context ends.
					witness(path, "end "+id)
					cancel()
				},
				OnStoppedLeading: func() {},
			},
		})
		cancel()
		if once {
			return
		}
		// Somebody else may come first.
		time.Sleep(1500 * time.Millisecond)
	}
}
