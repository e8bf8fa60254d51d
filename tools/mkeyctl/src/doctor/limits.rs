// SPDX-License-Identifier: GPL-2.0

//! Checks how much of the limits of device memory and of key memory is in use. Only root may read
//! them.

use std::path::Path;

use super::{
    machine::Machine,
    Finding, //
};
use crate::debugfs;

const CHECK: &str = "limits";

/// Checks the limits of the device `wanted`, or of all devices.
pub fn check(machine: &Machine, wanted: Option<&str>) -> Vec<Finding> {
    let dir = machine.path("sys/kernel/debug/ib_mkey");

    if !machine.is_loaded("ib_mkey") {
        return Vec::new();
    }
    if let Err(why) = debugfs::allowed(&dir.join("pools"), "how much is in use") {
        return vec![Finding::unknown(CHECK, why, "run as root")];
    }
    match full(&dir, wanted) {
        Ok(Some(full)) if full.is_empty() => vec![Finding::ok(
            CHECK,
            "there is device memory and key memory left",
        )],
        Ok(Some(full)) => full,
        Ok(None) => vec![Finding::unknown(
            CHECK,
            "debugfs shows nothing of ib_mkey",
            "as root: mount -t debugfs none /sys/kernel/debug",
        )],
        Err(why) => vec![Finding::unknown(
            CHECK,
            why,
            "use the mkeyctl that was installed with the ib_mkey that is loaded",
        )],
    }
}

/// Returns `true` if 9 tenths or more of the limit are in use.
fn is_nearly(used: Option<u64>, limit: Option<u64>) -> bool {
    matches!((used, limit), (Some(used), Some(limit))
        if limit != 0 && used >= limit.saturating_sub(limit.checked_div(10).unwrap_or(0)))
}

/// Returns a note for each limit that is nearly reached. Returns `None` if the kernel shows no
/// limits.
fn full(dir: &Path, wanted: Option<&str>) -> Result<Option<Vec<Finding>>, String> {
    let is_wanted = |device: &str| wanted.is_none_or(|wanted| wanted == device);
    let Some(pools) = debugfs::pools(dir)? else {
        return Ok(None);
    };
    let pools = pools
        .iter()
        .filter(|pool| is_wanted(&pool.device) && is_nearly(pool.used, pool.total))
        .map(|pool| {
            Finding::note(
                CHECK,
                format!(
                    "9 tenths or more of the device memory of {}, class {}, are in use",
                    pool.device, pool.class
                ),
                "mkeyctl ls dm shows the users; max_dm_size, a parameter of ib_mkey, raises the limit",
            )
        });
    let memory = debugfs::owners(dir)?.unwrap_or_default();
    let keys = debugfs::key_owners(dir)?.unwrap_or_default();
    let owners = memory
        .iter()
        .map(|owner| (owner, "device memory", "max_dm_size"))
        .chain(
            keys.iter()
                .map(|owner| (owner, "key memory", "max_key_memory")),
        )
        .filter(|(owner, ..)| is_wanted(&owner.device) && is_nearly(owner.bytes, owner.limit))
        .map(|(owner, what, parameter)| of_owner(owner, what, parameter));

    Ok(Some(pools.chain(owners).collect()))
}

fn of_owner(owner: &debugfs::Owner, what: &str, parameter: &str) -> Finding {
    match &owner.user {
        Some(user) => Finding::note(
            CHECK,
            format!(
                "user {user} has 9 tenths or more of the {what} that one user may have of {}",
                owner.device
            ),
            format!("{parameter}_per_user, a parameter of ib_mkey, raises the limit"),
        ),
        None => Finding::note(
            CHECK,
            format!("9 tenths or more of the {what} of {} are in use", owner.device),
            format!(
                "/sys/kernel/debug/ib_mkey/keys shows the users; {parameter}, a parameter of ib_mkey, raises the limit"
            ),
        ),
    }
}
