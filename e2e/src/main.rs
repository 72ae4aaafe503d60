//! The command line of the local cluster: parses, calls the library, prints.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use toolcrib_e2e::cluster::{
    self, Cluster, Extent, Home, Name, Progress, collector_binary, compatibility_programs,
    kube_binary,
};
use toolcrib_e2e::images::Profile;
use toolcrib_e2e::platform::Platform;
use toolcrib_e2e::{demo, images, packages, schemas};

/// A real Kubernetes cluster of one node on this machine, without Docker.
#[derive(Parser)]
#[command(name = "toolcrib-e2e")]
struct Arguments {
    /// Clusters of different names do not disturb each other.
    #[arg(long, global = true, default_value_t = Name::default_name())]
    name: Name,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start the cluster if it is not up; returns when it takes pods.
    Up {
        /// etcd, API server and controllers only: no pod runs.
        #[arg(long)]
        control_plane: bool,
    },
    /// Remove the cluster and everything it left behind.
    Down,
    /// Print whether the cluster is up, and its address and files.
    Status,
    /// List the logs, or print one.
    Logs { component: Option<String> },
    /// Print the path of the administrator's kubeconfig.
    Kubeconfig,
    /// Run kubectl against the cluster.
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run Helm against the cluster.
    Helm {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run a program of this machine in the node's namespaces.
    OnNode {
        program: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Let the node pull images from a registry by HTTP. Without this it pulls by HTTPS.
    PullByHttp {
        /// IP:PORT, as in the images' names.
        registry: SocketAddr,
    },
    /// Print the path of the binary of all Kubernetes programs, kubectl and Helm among them; build it
    /// if it is missing.
    Kube,
    /// Print the path of the OpenTelemetry Collector of the tests; build it if it is missing.
    Collector,
    /// Print each gateway of `./e2e/run bench-field` as NAME=PROGRAM, one a line; install those that
    /// are missing.
    Gateways,
    /// Print the path of Helm 3, which tests compare with the cluster's Helm; build it if it is missing.
    Helm3,
    /// Build the images and put them into the cluster if it is up.
    Images {
        /// As images are published: smaller and faster, and minutes slower to build.
        #[arg(long)]
        release: bool,
        /// Write OCI layouts into this folder, as a registry takes them, instead of archives for
        /// the cluster. Prints each image's name and digest.
        #[arg(long, requires = "tag")]
        layouts: Option<PathBuf>,
        /// The tag of the images in their layouts.
        #[arg(long, requires = "layouts")]
        tag: Option<String>,
        /// Only these, by their names without registry and tag.
        only: Vec<String>,
    },
    /// Write the SBOM of each image that consists of our programs; builds nothing.
    Sbom {
        /// The folder to write into.
        folder: PathBuf,
        /// Only these, by the images' names without registry and tag.
        only: Vec<String>,
    },
    /// Build the command line, linked statically, and print its path.
    CommandLine {
        /// As it is published.
        #[arg(long)]
        release: bool,
    },
    /// Write a JSON schema of each custom resource, as editors and validators read it.
    Schemas {
        /// The folder to write into.
        folder: PathBuf,
    },
    /// Start the cluster, build the images, and install or upgrade Toolcrib on it.
    Install {
        /// Namespaces in which agents may live; made if absent.
        #[arg(long = "namespace", default_value = "trading")]
        namespaces: Vec<String>,
        /// Images beside those of the product and the demonstration.
        #[arg(long = "image")]
        images: Vec<String>,
    },
    /// Install, apply the trading-desk example, and let its agents work.
    Demo,
    /// The node's first process, inside its namespaces.
    #[command(hide = true)]
    Node,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toolcrib-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { name, verb }: Arguments) -> Result<()> {
    match verb {
        Verb::Up { control_plane } => {
            let extent = if control_plane {
                Extent::ControlPlane
            } else {
                Extent::Node
            };
            Cluster::up_to(&name, extent, &Progress::stderr()).map(drop)
        }
        Verb::Down => Cluster::down(&name, &Progress::stderr()),
        Verb::Status => {
            print!("{}", Cluster::status(&name)?);
            Ok(())
        }
        Verb::Logs { component } => logs(&name, component.as_deref()),
        Verb::Kubeconfig => {
            println!("{}", found(&name)?.kubeconfig().display());
            Ok(())
        }
        Verb::Kubectl { arguments } => become_program(found(&name)?.kubectl().args(arguments)),
        Verb::Helm { arguments } => become_program(found(&name)?.helm().args(arguments)),
        Verb::OnNode { program, arguments } => {
            let mut command = found(&name)?
                .on_node(&program)
                .context("your own cluster's nodes are not reached")?;
            become_program(command.args(arguments))
        }
        Verb::PullByHttp { registry } => found(&name)?.pull_by_http(registry),
        Verb::Kube => {
            println!(
                "{}",
                kube_binary(&Home::find()?, &Progress::stderr())?.display()
            );
            Ok(())
        }
        Verb::Collector => {
            let binary = collector_binary(&Home::find()?, &Progress::stderr())?;
            println!("{}", binary.display());
            Ok(())
        }
        Verb::Gateways => {
            for (name, list) in packages::GATEWAYS {
                let program = packages::python(list)?.with_file_name(name);
                println!("{name}={}", program.display());
            }
            Ok(())
        }
        Verb::Helm3 => {
            let programs = compatibility_programs(&Home::find()?, &Progress::stderr())?;
            println!("{}", programs.helm3.display());
            Ok(())
        }
        Verb::CommandLine { release } => {
            let built = images::build_command_line(profile(release))?;
            println!("{}", built.display());
            Ok(())
        }
        Verb::Schemas { folder } => schemas::write(&folder),
        Verb::Images {
            release,
            layouts,
            tag,
            only,
        } => {
            let profile = profile(release);
            let progress = Progress::stderr();
            let programs = images::build_programs(&only, profile, &progress)?;
            if let Some((folder, tag)) = layouts.zip(tag) {
                return programs.write_layouts(&folder, &tag, &progress);
            }
            let archives = programs.write_archives(&progress)?;
            match Cluster::find(&name)? {
                Some(cluster) => archives.import(&cluster, &progress),
                None => {
                    progress.stage("images: built; not imported, since no cluster is up");
                    Ok(())
                }
            }
        }
        Verb::Sbom { folder, only } => {
            for path in images::write_sboms(&folder, &only)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Verb::Install { namespaces, images } => {
            let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
            Platform::install(&name, &namespaces, &images, &Progress::stderr()).map(drop)
        }
        Verb::Demo => {
            let progress = Progress::stderr();
            let platform = Platform::install(&name, &[demo::NAMESPACE], &[], &progress)?;
            demo::tell(&platform, &progress)
        }
        Verb::Node => cluster::serve_node(&name),
    }
}

fn profile(release: bool) -> Profile {
    match release {
        true => Profile::Release,
        false => Profile::Quick,
    }
}

fn found(name: &Name) -> Result<Cluster> {
    Cluster::find(name)?
        .with_context(|| format!("cluster {name} is not up: toolcrib-e2e --name {name} up"))
}

/// Replaces this process, so that the program has the terminal and the exit status.
fn become_program(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    Err(command.exec()).with_context(|| format!("start {}", program.display()))
}

/// Prints logs, even of a cluster that has ended: its folder stays until the cluster is taken down.
fn logs(name: &Name, component: Option<&str>) -> Result<()> {
    let folder = cluster::log_folder(name)?;
    if !folder.is_dir() {
        bail!("cluster {name} has no logs: it is down");
    }
    let Some(component) = component else {
        for entry in fs::read_dir(&folder)? {
            println!("{}", entry?.path().display());
        }
        return Ok(());
    };
    let mut log = fs::File::open(folder.join(format!("{component}.log")))
        .with_context(|| format!("no log of {component:?} in {}", folder.display()))?;
    std::io::copy(&mut log, &mut std::io::stdout())?;
    Ok(())
}
