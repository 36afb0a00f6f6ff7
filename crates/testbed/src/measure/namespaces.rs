//! A machine for each node: [`Namespaces`], network namespaces that a bridge joins. The effect of a power cut on the others is seen only
//! so: the kernel of a killed process says good-bye to its peers, and a link that is down takes that along.

use anyhow::{Context, Result, bail};
use hustings_testbed::Place;
use std::process::Command;

/// The network that the nodes share, and the address of this machine in it.
const NETWORK: &str = "10.77.31";
const BRIDGE: &str = "hm-bridge";

/// Namespaces for so many nodes; gone when this is dropped. Takes root and iproute2.
pub(crate) struct Namespaces {
    count: usize,
}

impl Namespaces {
    /// Makes them, and a bridge.
    ///
    /// # Errors
    /// Not root, no `ip` (Debian: iproute2), or another measurement has them.
    pub(crate) fn make(count: usize) -> Result<Namespaces> {
        ip(&format!("link add {BRIDGE} type bridge"))?;
        // From here on there is something to remove.
        let namespaces = Namespaces { count };
        ip(&format!("addr add {NETWORK}.254/24 dev {BRIDGE}"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        for number in 1..=count {
            ip(&format!("netns add hm-{number}"))?;
            ip(&format!("link add hm-link-{number} type veth peer name eth0 netns hm-{number}"))?;
            ip(&format!("link set hm-link-{number} master {BRIDGE} up"))?;
            ip(&format!("-n hm-{number} addr add {NETWORK}.{number}/24 dev eth0"))?;
            ip(&format!("-n hm-{number} link set eth0 up"))?;
            ip(&format!("-n hm-{number} link set lo up"))?;
        }
        Ok(namespaces)
    }

    /// Where each node runs.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |number| Place {
            host: format!("{NETWORK}.{number}"),
            runner: format!("ip netns exec hm-{number}").split(' ').map(str::to_owned).collect(),
        };
        (1..=self.count).map(place).collect()
    }

    /// Pulls the cable of a node: nothing reaches it or leaves it any more.
    pub(crate) fn unplug(&self, position: usize) -> Result<()> {
        ip(&format!("link set hm-link-{} down", position + 1))
    }

    /// Plugs it in again.
    pub(crate) fn plug(&self, position: usize) -> Result<()> {
        ip(&format!("link set hm-link-{} up", position + 1))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // A namespace that is gone already needs no removal.
        for number in 1..=self.count {
            let _ = ip(&format!("netns del hm-{number}"));
            let _ = ip(&format!("link del hm-link-{number}"));
        }
        let _ = ip(&format!("link del {BRIDGE}"));
    }
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.context("cannot run `ip`: a silent end takes Debian's iproute2")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {arguments}`: {} (it takes root; only one such measurement at a time)", said.trim());
    }
    Ok(())
}
