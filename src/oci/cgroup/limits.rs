//! From `linux.resources` to the files of the cgroups: what all kinds of limits share.

use std::path::Path;

use oci_spec::runtime::LinuxResources;
use rustix::io::Errno;

use super::place::Place;
use super::{Cgroup, block, cpu, devices, file, memory, others};
use crate::linux::cgroup::unified;
use crate::oci::{Error, Result};

/// Where limits of a container are written, and who is told of what is done without.
pub struct Limits<'a, 'w> {
    places: &'a [Place],
    /// Some hierarchy could not be had, and need not: what it would hold is told, no error.
    partial: bool,
    /// Without root in the initial user namespace.
    pub rootless: bool,
    warn: &'w mut dyn FnMut(String),
}

/// The cgroup that has a controller.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The cgroup's directory.
    pub dir: &'a Path,
    /// Version 2.
    pub unified: bool,
}

/// A value of a document that is there: 0 has always meant that nothing is asked for.
pub fn given<T: PartialEq + Default>(value: Option<T>) -> Option<T> {
    value.filter(|value| *value != T::default())
}

/// How a limit is written in version 2, where -1 is `max`.
pub fn unlimited(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// An error about a field below `linux.resources`.
pub fn refused(field: &str, why: impl std::fmt::Display) -> Error {
    Error::new(format!("linux.resources.{field}: {why}"))
}

impl Target<'_> {
    /// Writes a limit.
    ///
    /// # Errors
    ///
    /// As write(2), with the field, the text and the file.
    pub fn set(&self, field: &str, name: &str, text: &str) -> Result<()> {
        file::write(self.dir, name, text).map_err(|errno| self.failed(field, name, text, errno))
    }

    /// The error of a limit that could not be written.
    pub fn failed(&self, field: &str, name: &str, text: &str, errno: Errno) -> Error {
        let path = self.dir.join(name);
        match errno {
            Errno::NOENT => {
                refused(field, format!("this kernel has no {}: {errno}", path.display()))
            }
            _ => refused(field, format!("cannot write `{text}` to {}: {errno}", path.display())),
        }
    }

    /// Writes limits of which the kernel checks each against the others: one that does not fit yet is
    /// written again after the rest.
    ///
    /// # Errors
    ///
    /// The first one that does not fit in any order.
    pub fn set_together(&self, mut wanted: Vec<(&str, &str, String)>) -> Result<()> {
        loop {
            let before = wanted.len();
            let mut refusal = None;
            let mut left = Vec::new();
            for (field, name, text) in wanted {
                match file::write(self.dir, name, &text) {
                    Ok(()) => {}
                    Err(errno @ Errno::INVAL) => {
                        refusal.get_or_insert(self.failed(field, name, &text, errno));
                        left.push((field, name, text));
                    }
                    Err(errno) => return Err(self.failed(field, name, &text, errno)),
                }
            }
            match refusal {
                None => return Ok(()),
                Some(error) if left.len() == before => return Err(error),
                Some(_) => wanted = left,
            }
        }
    }
}

impl<'a, 'w> Limits<'a, 'w> {
    /// For the cgroups of a container.
    pub fn new(cgroup: &'a Cgroup, warn: &'w mut dyn FnMut(String)) -> Self {
        let Cgroup { places, partial, rootless, .. } = cgroup;
        Limits { places, partial: *partial, rootless: *rootless, warn }
    }

    /// Sets what is given.
    ///
    /// # Errors
    ///
    /// The first field that cannot be had.
    pub fn set(&mut self, resources: &LinuxResources) -> Result<()> {
        if let Some(rules) = resources.devices() {
            devices::set(self, rules)?;
        }
        if let Some(memory) = resources.memory() {
            memory::set(self, memory)?;
        }
        if let Some(cpu) = resources.cpu() {
            cpu::set(self, cpu)?;
        }
        if let Some(block) = resources.block_io() {
            block::set(self, block)?;
        }
        others::set(self, resources)
    }

    /// The cgroup with the controller that `field` needs; `None` where it is done without, which was
    /// told.
    ///
    /// # Errors
    ///
    /// Where no hierarchy of the host has it.
    pub fn target(&mut self, field: &str, controller: &str) -> Result<Option<Target<'a>>> {
        if let Some(place) = self.separate(controller) {
            return Ok(Some(Target { dir: &place.dir, unified: false }));
        }
        if let Some(place) = self.unified() {
            let has = |dir: &Path| {
                unified::words(dir.join("cgroup.controllers")).iter().any(|name| name == controller)
            };
            if has(&place.dir) {
                return Ok(Some(Target { dir: &place.dir, unified: true }));
            }
            if has(&place.mount) && !self.partial {
                let dir = place.dir.display();
                return Err(refused(
                    field,
                    format!("the {controller} controller is not handed down to {dir}"),
                ));
            }
        }
        self.without(field, &format!("the {controller} controller is not available"))?;
        Ok(None)
    }

    /// Whether some hierarchy is done without.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// The cgroup of version 2, for a file that belongs to no controller.
    ///
    /// # Errors
    ///
    /// Where the host has none.
    pub fn unified_target(&mut self, field: &str) -> Result<Option<Target<'a>>> {
        match self.unified() {
            Some(place) => Ok(Some(Target { dir: &place.dir, unified: true })),
            None => self.without(field, "no cgroup of version 2").map(|()| None),
        }
    }

    /// The cgroup of version 1 with the controller.
    pub fn separate(&self, controller: &str) -> Option<&'a Place> {
        self.places.iter().find(|place| place.has(controller))
    }

    /// The cgroup of version 2.
    pub fn unified(&self) -> Option<&'a Place> {
        self.places.iter().find(|place| place.unified)
    }

    /// Tells that a field is done without, where that is allowed.
    ///
    /// # Errors
    ///
    /// Where it is not.
    pub fn without(&mut self, field: &str, why: &str) -> Result<()> {
        if !self.partial {
            return Err(refused(field, why));
        }
        self.tell(&format!("linux.resources.{field} is not applied: {why}"));
        Ok(())
    }

    /// Tells what is done without.
    pub fn tell(&mut self, what: &str) {
        (self.warn)(what.to_owned());
    }
}
