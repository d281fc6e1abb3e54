//! Rights: they are given up when all that needs them is open.

use std::ffi::CString;

use nix::unistd::{self, Uid, User};

use crate::error::AgentError;

/// Whether this process may do everything.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Makes this process one of the user `name`, with that user's groups, for good. Does nothing if it is one already.
///
/// # Errors
/// [`AgentError::User`]: there is no such user, or this process may not become another.
pub fn become_user(name: &str) -> Result<(), AgentError> {
    let wrong = |reason: String| AgentError::User { user: name.into(), reason };
    let failed = |what: &'static str| {
        move |error: nix::Error| AgentError::User {
            user: name.into(),
            reason: format!("{what}: {}", error.desc()),
        }
    };
    let user = User::from_name(name).map_err(failed("looking it up"))?;
    let user = user.ok_or_else(|| wrong("there is no such user; do this: useradd --system evener".into()))?;
    if user.uid == Uid::effective() {
        return Ok(());
    }
    if !is_root() {
        return Err(wrong("only root can become another user".into()));
    }
    let c_name = CString::new(name).map_err(|_| wrong("a name cannot have a zero byte".into()))?;
    // Groups first: without root's rights they could not be changed.
    unistd::initgroups(&c_name, user.gid).map_err(failed("its groups"))?;
    unistd::setgid(user.gid).map_err(failed("its group"))?;
    unistd::setuid(user.uid).map_err(failed("its number"))?;
    // A saved identity would be a way back.
    if !user.uid.is_root() && unistd::setuid(Uid::from_raw(0)).is_ok() {
        return Err(wrong("root's rights could be had back".into()));
    }
    Ok(())
}
