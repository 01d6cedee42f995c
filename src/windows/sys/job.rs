//! Job objects: all processes of a run, their ceilings and their end.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::Duration;

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::JobObjects::{
    CreateJobObjectW, IsProcessInJob, JOB_OBJECT_CPU_RATE_CONTROL_ENABLE,
    JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP, JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_CPU_RATE_CONTROL_INFORMATION,
    JOBOBJECT_CPU_RATE_CONTROL_INFORMATION_0, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JOBOBJECTINFOCLASS, JobObjectBasicAccountingInformation, JobObjectCpuRateControlInformation,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
    TerminateJobObject,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::check;
use crate::lower::appcontainer;

/// How often a run that is being ended is looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// A job that no process leaves, and whose processes end with its last handle: with this launcher.
pub struct Job(OwnedHandle);

impl Job {
    /// A job with these ceilings, but for the one on time.
    ///
    /// # Errors
    ///
    /// That of the system.
    pub fn new(limits: &appcontainer::Job) -> io::Result<Job> {
        // SAFETY: without attributes and a name the handle is ours alone, and no child inherits it.
        let job = unsafe {
            let handle = CreateJobObjectW(ptr::null(), ptr::null());
            if handle.is_null() {
                return Err(io::Error::last_os_error());
            }
            Job(OwnedHandle::from_raw_handle(handle))
        };
        let mut information = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        let basic = &mut information.BasicLimitInformation;
        basic.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        if let Some(processes) = limits.processes {
            basic.LimitFlags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
            basic.ActiveProcessLimit = processes;
        }
        if let Some(memory) = limits.memory {
            basic.LimitFlags |= JOB_OBJECT_LIMIT_JOB_MEMORY;
            information.JobMemoryLimit = usize::try_from(memory).unwrap_or(usize::MAX);
        }
        job.set(JobObjectExtendedLimitInformation, &information)?;
        if let Some(rate) = limits.cpu_rate {
            let information = JOBOBJECT_CPU_RATE_CONTROL_INFORMATION {
                ControlFlags: JOB_OBJECT_CPU_RATE_CONTROL_ENABLE
                    | JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP,
                Anonymous: JOBOBJECT_CPU_RATE_CONTROL_INFORMATION_0 { CpuRate: rate },
            };
            job.set(JobObjectCpuRateControlInformation, &information)?;
        }
        Ok(job)
    }

    fn set<T>(&self, class: JOBOBJECTINFOCLASS, information: &T) -> io::Result<()> {
        let size = u32::try_from(size_of::<T>()).unwrap_or(0);
        let pointer = ptr::from_ref(information).cast::<c_void>();
        // SAFETY: the handle is open, and the structure that goes with the class lives as long as the call.
        check(unsafe { SetInformationJobObject(self.handle(), class, pointer, size) })
    }

    pub(super) fn handle(&self) -> HANDLE {
        self.0.as_raw_handle()
    }

    /// Ends every process in it, and returns when there is none.
    ///
    /// # Errors
    ///
    /// Where the system does not say how many there are; then they end with the launcher.
    pub fn end(&self, code: u32) -> io::Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { TerminateJobObject(self.handle(), code) })?;
        while self.processes()? > 0 {
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn processes(&self) -> io::Result<u32> {
        let mut information = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let size = u32::try_from(size_of_val(&information)).unwrap_or(0);
        let (class, pointer) = (JobObjectBasicAccountingInformation, (&raw mut information).cast());
        // SAFETY: the handle is open, and the structure that goes with the class is filled by the call.
        check(unsafe {
            QueryInformationJobObject(self.handle(), class, pointer, size, ptr::null_mut())
        })?;
        Ok(information.ActiveProcesses)
    }
}

/// Whether this process is in a job itself.
pub(super) fn in_job() -> bool {
    let mut inside = 0;
    // SAFETY: the handle of this process is always valid; without a job, any is meant.
    unsafe {
        IsProcessInJob(GetCurrentProcess(), ptr::null_mut(), &raw mut inside) != 0 && inside != 0
    }
}
