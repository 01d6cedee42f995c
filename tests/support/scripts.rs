//! Scripts that must give the same lines, and leave the same tree, bare and sandboxed.

/// One script.
pub struct Script {
    /// Named in a failure.
    pub name: &'static str,
    /// Capabilities that it needs.
    pub needs: &'static [&'static str],
    /// Operations outside, before the run.
    pub setup: &'static [&'static str],
    /// The script.
    pub ops: &'static [&'static str],
}

/// A script without needs.
pub(super) const fn script(
    name: &'static str,
    setup: &'static [&'static str],
    ops: &'static [&'static str],
) -> Script {
    Script { name, needs: &[], setup, ops }
}

impl Script {
    /// With capabilities.
    pub(super) const fn needs(mut self, needs: &'static [&'static str]) -> Script {
        self.needs = needs;
        self
    }
}

/// Every script.
pub fn all() -> impl Iterator<Item = &'static Script> {
    super::scripts_files::FILES.iter().chain(super::scripts_processes::PROCESSES)
}
