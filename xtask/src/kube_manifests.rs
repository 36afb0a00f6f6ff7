//! `cargo xtask kube-apiserver --manifests`: what `packaging` ships for Kubernetes, before the real kube-apiserver.
//!
//! Each of it is applied with `kubectl`, strictly: as a trial, then really, then compared with what stands there. A server alone
//! starts no pods, so a pod is made of the template, too, in a namespace where Pod Security enforces its strictest standard. At
//! last a manifest with a mistake must be refused: the judge can say no.

use crate::{chore, kube_apiserver};
use anyhow::{Context, ensure};
use hustings_testbed::{Cluster, Program};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The manifests that are shipped: a file, or a folder for `kubectl apply -k`.
const SHIPPED: [(&str, &str); 2] = [("-f", "kubernetes/hustings.yaml"), ("-k", "kubernetes-client-certificates")];
/// A line of a manifest and its misspelling, which must be refused.
const MISTAKE: (&str, &str) = ("maxUnavailable: 1", "maxUnavailabel: 1");

/// `kubectl` for one server, and one namespace of it.
struct Kubectl {
    kubeconfig: PathBuf,
    namespace: String,
}

impl Kubectl {
    fn say(&self, words: &[&str], input: &str) -> anyhow::Result<Output> {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["-n", &self.namespace]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("there is no kubectl: apt-get install -y kubectl")?;
        // One that reads nothing has its reasons, and says them.
        let _ = std::io::Write::write_all(&mut child.stdin.take().context("it is piped")?, input.as_bytes());
        Ok(child.wait_with_output()?)
    }

    /// Runs it; gives its output when all is well, warnings counted as errors.
    fn ok(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        let output = self.say(words, input)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && said.trim().is_empty(), "kubectl {}: {said}", words.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Applies all that is shipped.
pub(crate) async fn judge(hustings: &Path, folder: &Path) -> anyhow::Result<()> {
    let cluster = Cluster::start(Program::hustings(hustings), 1).await?;
    let (_server, kubeconfig) = kube_apiserver::serve(&cluster, folder, hustings).await?;
    let packaging = chore::root().join("packaging");
    for (number, (how, name)) in SHIPPED.into_iter().enumerate() {
        let kubectl = Kubectl { kubeconfig: kubeconfig.clone(), namespace: format!("shipped-{number}") };
        strict_namespace(&kubectl)?;
        let path = packaging.join(name);
        let path = path.to_str().context("a path is text")?;
        let apply = ["apply", "--server-side", "--validate=strict", how, path];
        kubectl.ok(&[&apply[..], &["--dry-run=server"]].concat(), "")?;
        let applied = kubectl.ok(&apply, "")?;
        print!("{name}:\n{applied}");
        kubectl.ok(&["diff", "--server-side", how, path], "").context("what stands there is another thing")?;
        pod_of_the_template(&kubectl)?;
    }
    let kubectl = Kubectl { kubeconfig, namespace: "default".to_owned() };
    let text = std::fs::read_to_string(packaging.join(SHIPPED[0].1))?;
    ensure!(text.contains(MISTAKE.0), "there is no {:?} to make a mistake in", MISTAKE.0);
    let wrong = kubectl.say(
        &["apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-"],
        &text.replace(MISTAKE.0, MISTAKE.1),
    )?;
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    ensure!(!wrong.status.success() && said.contains("maxUnavailabel"), "a mistake was not found: {said}");
    println!("a mistake is refused: {}", said.lines().next().unwrap_or_default());
    Ok(())
}

/// Makes the namespace, where only pods are let in that may do next to nothing.
fn strict_namespace(kubectl: &Kubectl) -> anyhow::Result<()> {
    kubectl.ok(&["create", "namespace", &kubectl.namespace], "")?;
    for mode in ["enforce", "warn"] {
        let label = format!("pod-security.kubernetes.io/{mode}=restricted");
        kubectl.ok(&["label", "namespace", &kubectl.namespace, &label], "")?;
    }
    Ok(())
}

/// Makes the pod that the controller of stateful sets would make for the first member.
fn pod_of_the_template(kubectl: &Kubectl) -> anyhow::Result<()> {
    let set: Value = serde_json::from_str(&kubectl.ok(&["get", "statefulset", "hustings", "-o", "json"], "")?)?;
    let mut spec = set["spec"]["template"]["spec"].clone();
    let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-hustings-0"}});
    spec["volumes"].as_array_mut().context("it has volumes")?.push(claim);
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hustings-0", "labels": labels}, "spec": spec});
    let made = kubectl.ok(&["create", "--validate=strict", "-f", "-"], &pod.to_string())?;
    print!("{made}");
    Ok(())
}
