//! `cargo xtask kube-apiserver`: the real kube-apiserver with a Hustings cluster as its etcd.
//!
//! ```text
//!   client-go's leaderelection ─┐                      ┌─ n1
//!   hustings run                ├─► one Lease ─► kube-apiserver ─► n2   the leader is killed
//!                               └─ witness file        └─ n3
//! ```
//!
//! The server is built from the Go module proxy: module `k8s.io/kubernetes`, whose staging modules are replaced by the versions
//! published beside it (v1.N.P and v0.N.P). It needs Go, a gigabyte of disk, and some minutes of a core; it is built once for
//! a version. Candidates write a line when they begin to lead and one when they end: nobody may begin between the two of
//! another. With `--stay` it all runs on until Ctrl-C, for `kubectl`. With `--manifests` nobody fights: see
//! [`crate::kube_manifests`].

use crate::chore::{self, Profile};
use crate::kube_manifests;
use hustings_testbed::{Cluster, PATIENCE, Program, free_port, spawn, wait_for};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const VERSION: &str = "1.36.3";
/// Token of the user who may do everything.
const TOKEN: &str = "known-to-this-test";
/// Number of leaderships that are waited for before the leader of the cluster is killed, and after.
const LEADERSHIPS: usize = 6;

/// A process that ends with this value, and its children with it.
pub(crate) struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> std::io::Result<Running> {
        spawn(command.process_group(0)).map(Running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A group that has ended already is as dead as it gets.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

/// Runs the chore: `[--version 1.N.P] [--stay | --manifests]`.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let for_manifests = arguments.last() == Some(&"--manifests");
    let flag = if for_manifests { "--manifests" } else { "--stay" };
    let (version, has_flag) = chore::version_and(arguments, VERSION, flag)
        .ok_or("usage: cargo xtask kube-apiserver [--version 1.N.P] [--stay | --manifests]")?;
    let folder = built(version)?;
    Profile::Dev.build(&["-p", "hustings"])?;
    let hustings = Profile::Dev.folder().join("hustings");
    match for_manifests {
        true => chore::block_on(2, kube_manifests::judge(&hustings, &folder)),
        false => chore::block_on(2, duel(&hustings, &folder, has_flag)),
    }
}

/// The folder with the server and the rival, which are built if they are not there yet.
pub(crate) fn built(version: &str) -> Result<PathBuf, String> {
    let folder = chore::target().join("kube-apiserver").join(version);
    if !folder.join("apiserver").exists() || !folder.join("candidate").exists() {
        build(version, &folder)?;
    }
    Ok(folder)
}

fn build(version: &str, folder: &Path) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kube-apiserver");
    std::fs::create_dir_all(folder.join("rival")).map_err(|error| failed("cannot make a folder", &error))?;
    for file in ["main.go", "rival/main.go"] {
        std::fs::copy(sources.join(file), folder.join(file)).map_err(|error| failed(file, &error))?;
    }
    let module = format!("k8s.io/kubernetes@v{version}");
    let said = Command::new("go").current_dir(folder).args(["mod", "download", "-json", &module]).output();
    let said = said.map_err(|error| failed("go does not start: install Go 1.26 or later", &error))?;
    let said: serde_json::Value =
        serde_json::from_slice(&said.stdout).map_err(|error| failed("go mod download", &error))?;
    let declared = said["GoMod"].as_str().ok_or_else(|| format!("{module} cannot be downloaded: {}", said["Error"]))?;
    let declared = std::fs::read_to_string(declared).map_err(|error| failed(declared, &error))?;
    let staged = version.strip_prefix("1.").ok_or("a version is 1.N.P")?;
    let mut text =
        format!("module hustings.test/kube-apiserver\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v{version}\n\n");
    for line in declared.lines().filter(|line| line.contains("=> ./staging")) {
        let name = line.trim().trim_start_matches("replace ").split(" =>").next().unwrap_or_default();
        text.push_str(&format!("replace {name} => {name} v0.{staged}\n"));
    }
    std::fs::write(folder.join("go.mod"), text).map_err(|error| failed("go.mod", &error))?;
    chore::go(folder, &["mod", "tidy"])?;
    let minor = staged.split('.').next().unwrap_or_default();
    let name = "k8s.io/component-base/version";
    let stamp = format!("-s -w -X {name}.gitVersion=v{version} -X {name}.gitMajor=1 -X {name}.gitMinor={minor}");
    chore::go(folder, &["build", "-ldflags", &stamp, "-o", "candidate", "./rival"])?;
    chore::go(folder, &["build", "-ldflags", &stamp, "-o", "apiserver", "."])
}

async fn duel(hustings: &Path, folder: &Path, stays: bool) -> anyhow::Result<()> {
    let mut cluster = Cluster::start(Program::hustings(hustings), 3).await?;
    let directory = cluster.directory().to_owned();
    let store = "kubernetes:///default";
    let served = serve(&cluster, folder, hustings).await;
    if served.is_err() {
        cluster.keep();
    }
    let (_server, kubeconfig) = served?;
    let witness = directory.join("witness");
    let mut rival = Command::new(folder.join("candidate"));
    rival
        .arg(&kubeconfig)
        .args(["duel", "client-go"])
        .arg(&witness)
        .stderr(std::fs::File::create(directory.join("rival.log"))?);
    let _rival = Running::start(&mut rival)?;
    let _ours = ours(hustings, store, &kubeconfig, &witness, &directory)?;
    leaderships(&witness, LEADERSHIPS).await?;
    let leader = cluster.leader().await?;
    cluster.kill(leader);
    println!("the cluster's leader, {}, is killed", cluster.nodes[leader].name);
    let before = read(&witness).len();
    leaderships(&witness, before / 2 + LEADERSHIPS).await?;
    let lines = read(&witness);
    judge(&lines)?;
    let count = |who: &str| lines.iter().filter(|line| **line == format!("begin {who}")).count();
    println!("{} leaderships of client-go, {} of ours, no two at once", count("client-go"), count("ours"));
    if stays {
        println!("KUBECONFIG={}", kubeconfig.display());
        tokio::signal::ctrl_c().await?;
    }
    Ok(())
}

/// Starts the API server on this cluster, and waits until it serves Leases. Gives the file that says how to reach it.
pub(crate) async fn serve(cluster: &Cluster, folder: &Path, hustings: &Path) -> anyhow::Result<(Running, PathBuf)> {
    let (kubeconfig, log) = (cluster.directory().join("kubeconfig"), cluster.directory().join("apiserver.log"));
    let server = start(cluster, folder, &kubeconfig, &log)?;
    let observe = || {
        let mut command = Command::new(hustings);
        command.args(["observe", "duel", "--once", "--store", "kubernetes:///default"]).env("KUBECONFIG", &kubeconfig);
        command.output().ok()
    };
    let begun = std::time::Instant::now();
    let served = wait_for(&format!("the API server (its log: {})", log.display()), async || {
        // 3: nobody leads, which is an answer.
        observe().filter(|said| said.status.code() == Some(3)).map(drop)
    })
    .await;
    if let Err(error) = served {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(40).collect();
        anyhow::bail!("{error}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    println!("kube-apiserver serves Leases {:?} after its start", begun.elapsed());
    Ok((server, kubeconfig))
}

/// Starts the API server on this cluster, and says how to reach it.
fn start(cluster: &Cluster, folder: &Path, kubeconfig: &Path, log: &Path) -> anyhow::Result<Running> {
    let directory = cluster.directory();
    let (port, key, tokens) = (free_port()?, directory.join("accounts.key"), directory.join("tokens.csv"));
    std::fs::write(&tokens, format!("{TOKEN},admin,1,system:masters\n"))?;
    chore::run(Command::new(folder.join("apiserver")).arg("-make-key").arg(&key)).map_err(anyhow::Error::msg)?;
    let user = format!("{{name: c, user: {{token: {TOKEN}}}}}");
    let server =
        format!("{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", insecure-skip-tls-verify: true}}}}");
    std::fs::write(
        kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{server}]\nusers: [{user}]\ncontexts: [{{name: c, \
             context: {{cluster: c, user: c}}}}]\n"
        ),
    )?;
    let log = std::fs::File::create(log)?;
    let mut command = Command::new(folder.join("apiserver"));
    command.arg("--etcd-servers").arg(cluster.endpoints().join(","));
    command.arg("--cert-dir").arg(directory.join("certificates")).arg("--token-auth-file").arg(&tokens);
    command.arg("--service-account-key-file").arg(&key).arg("--service-account-signing-key-file").arg(&key);
    command.args(["--service-account-issuer", "https://localhost", "--service-cluster-ip-range", "10.0.0.0/24"]);
    command.args([
        "--bind-address",
        "127.0.0.1",
        "--secure-port",
        &port.to_string(),
        "--endpoint-reconciler-type",
        "none",
    ]);
    command.args(["--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount", "-v", "1"]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Running::start(&mut command)?)
}

/// Our candidate, again and again: `hustings run` ends with its command, and releases.
fn ours(hustings: &Path, store: &str, kubeconfig: &Path, witness: &Path, directory: &Path) -> anyhow::Result<Running> {
    let leads = "echo begin ours >>\"$WITNESS\"; sleep 1.5; echo end ours >>\"$WITNESS\"";
    let again = "while :; do \"$0\" run --election duel --store \"$1\" --ttl 6s --stop-grace 1s -- sh -c \"$2\"; sleep 1.5; done";
    let mut command = Command::new("sh");
    command
        .args(["-c", again])
        .arg(hustings)
        .args([store, leads])
        .env("KUBECONFIG", kubeconfig)
        .env("WITNESS", witness);
    command.stderr(std::fs::File::create(directory.join("ours.log"))?);
    Ok(Running::start(&mut command)?)
}

fn read(witness: &Path) -> Vec<String> {
    std::fs::read_to_string(witness).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits for this many leaderships to have ended.
async fn leaderships(witness: &Path, count: usize) -> anyhow::Result<()> {
    let mut seen = 0;
    let mut since = std::time::Instant::now();
    loop {
        let lines = read(witness);
        judge(&lines)?;
        let ended = lines.iter().filter(|line| line.starts_with("end ")).count();
        if ended >= count {
            return Ok(());
        }
        if ended > seen {
            (seen, since) = (ended, std::time::Instant::now());
        }
        anyhow::ensure!(since.elapsed() < PATIENCE, "nobody has led for {PATIENCE:?}: {lines:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks that nobody begins before the one before has ended.
fn judge(lines: &[String]) -> anyhow::Result<()> {
    let mut leads: Option<&str> = None;
    for line in lines {
        match (line.split_once(' '), leads) {
            (Some(("begin", who)), None) => leads = Some(who),
            (Some(("end", who)), Some(leader)) if who == leader => leads = None,
            _ => anyhow::bail!("two lead: {line:?} while {leads:?} does, in {lines:?}"),
        }
    }
    Ok(())
}
