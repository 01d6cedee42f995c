//! Processes: their start in a container and a job, and their end.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE, INVALID_HANDLE_VALUE, WAIT_OBJECT_0,
    WAIT_TIMEOUT,
};
use windows_sys::Win32::Security::SECURITY_CAPABILITIES;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE,
    STD_OUTPUT_HANDLE, SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::Threading::{
    CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessW, DeleteProcThreadAttributeList,
    EXTENDED_STARTUPINFO_PRESENT, GetCurrentProcess, GetExitCodeProcess,
    InitializeProcThreadAttributeList, PROC_THREAD_ATTRIBUTE_ALL_APPLICATION_PACKAGES_POLICY,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST,
    PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, PROCESS_INFORMATION, STARTF_USESTDHANDLES,
    STARTUPINFOEXW, TerminateProcess, UpdateProcThreadAttribute, WaitForSingleObject,
};

use super::container::Capabilities;
use super::job::{Job, in_job};
use super::{check, words};

/// `PROCESS_CREATION_ALL_APPLICATION_PACKAGES_OPT_OUT`: an LPAC.
const OPT_OUT: u32 = 1;
/// `ERROR_ACCESS_DENIED`.
const ACCESS_DENIED: i32 = 5;

/// The container that a program is started in.
#[derive(Clone, Debug)]
pub struct Container {
    /// Its SID.
    pub sid: Vec<u8>,
    /// Its capabilities, by the last number of their SIDs.
    pub capabilities: Vec<u32>,
    /// It opts out of what is granted to every container.
    pub lpac: bool,
}

/// What is started. Each text ends in NUL.
#[derive(Debug)]
pub struct Start {
    /// The file.
    pub program: Vec<u16>,
    /// The command line.
    pub line: Vec<u16>,
    /// The environment, `NAME=value` each, and another NUL.
    pub environment: Vec<u16>,
    /// The directory.
    pub directory: Vec<u16>,
    /// It has our standard streams.
    pub streams: bool,
}

/// Why a program did not start.
#[derive(Debug)]
pub enum Refused {
    /// A job that this process is in does not let its children be in one of ours.
    HostJob,
    /// Anything else.
    Other(io::Error),
}

/// A process that was started.
pub struct Process(OwnedHandle);

impl Process {
    /// Starts a program in the job and, where one is given, in a container. Of our handles it has the standard
    /// ones.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    pub fn start(
        start: &mut Start,
        container: Option<&Container>,
        job: &Job,
    ) -> Result<Process, Refused> {
        match create(start, container, Some(job), 0) {
            Err(error) if error.raw_os_error() == Some(ACCESS_DENIED) && in_job() => {
                // The same without a job of ours tells what was denied. It never runs.
                match create(start, container, None, CREATE_SUSPENDED) {
                    Ok(process) => {
                        // SAFETY: the handle is open.
                        unsafe { TerminateProcess(process.0.as_raw_handle(), 1) };
                        Err(Refused::HostJob)
                    }
                    Err(_) => Err(Refused::Other(error)),
                }
            }
            other => other.map_err(Refused::Other),
        }
    }

    /// Waits for its end, no longer than `most`; its exit code, or `None` when the time is up.
    ///
    /// # Errors
    ///
    /// That of the system.
    pub fn wait(&self, most: Option<Duration>) -> io::Result<Option<u32>> {
        // The longest time that the call takes for one, and not for ever.
        const LONGEST: Duration = Duration::from_millis(u32::MAX as u64 - 1);
        let start = Instant::now();
        loop {
            let left =
                most.map_or(LONGEST, |most| most.saturating_sub(start.elapsed()).min(LONGEST));
            // A fraction of a millisecond is waited for whole.
            let milliseconds =
                u32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u32::MAX - 1);
            // SAFETY: the handle is open.
            match unsafe { WaitForSingleObject(self.0.as_raw_handle(), milliseconds) } {
                WAIT_OBJECT_0 => break,
                WAIT_TIMEOUT if most.is_some_and(|most| start.elapsed() >= most) => {
                    return Ok(None);
                }
                WAIT_TIMEOUT => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        let mut code = 0;
        // SAFETY: the handle is open, and the number lives as long as the call.
        check(unsafe { GetExitCodeProcess(self.0.as_raw_handle(), &raw mut code) })?;
        Ok(Some(code))
    }
}

/// Leaves the keys that end a program to the program, which shares our console.
pub fn leave_keys_to_the_program() {
    unsafe extern "system" fn handle(event: u32) -> i32 {
        i32::from(matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT))
    }
    // SAFETY: the handler touches nothing.
    unsafe { SetConsoleCtrlHandler(Some(handle), 1) };
}

/// The handles of the standard streams, as a child can inherit them.
struct Streams {
    handles: Vec<OwnedHandle>,
    standard: [HANDLE; 3],
}

impl Streams {
    fn none() -> Streams {
        Streams { handles: Vec::new(), standard: [ptr::null_mut(); 3] }
    }

    fn duplicate() -> io::Result<Streams> {
        let mut streams = Streams::none();
        let numbers = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE];
        for (standard, number) in streams.standard.iter_mut().zip(numbers) {
            // SAFETY: the handles are this process's own; the new one is ours.
            unsafe {
                let handle = GetStdHandle(number);
                if handle.is_null() || handle == INVALID_HANDLE_VALUE {
                    continue;
                }
                let this = GetCurrentProcess();
                let (to, how) = (&raw mut *standard, DUPLICATE_SAME_ACCESS);
                check(DuplicateHandle(this, handle, this, to, 0, 1, how))?;
                streams.handles.push(OwnedHandle::from_raw_handle(*standard));
            }
        }
        Ok(streams)
    }
}

/// Attributes of a process that is made.
struct Attributes(Vec<usize>);

impl Attributes {
    fn new(count: u32) -> io::Result<Attributes> {
        let mut size = 0;
        // SAFETY: without a list the call tells its size, and fails; then the list is as long as it said.
        unsafe {
            InitializeProcThreadAttributeList(ptr::null_mut(), count, 0, &raw mut size);
            let mut list = Attributes(vec![0; size.div_ceil(size_of::<usize>())]);
            check(InitializeProcThreadAttributeList(list.pointer(), count, 0, &raw mut size))?;
            Ok(list)
        }
    }

    fn pointer(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Adds an attribute, which has to live as long as the list: it is pointed to.
    fn add<T>(&mut self, attribute: u32, value: &[T]) -> io::Result<()> {
        let (list, number) = (self.pointer(), attribute as usize);
        let (value, size) = (value.as_ptr().cast(), size_of_val(value));
        // SAFETY: the list has room for it, and the value is as long as it is said to be.
        check(unsafe {
            UpdateProcThreadAttribute(list, 0, number, value, size, ptr::null_mut(), ptr::null())
        })
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the list was initialized.
        unsafe { DeleteProcThreadAttributeList(self.pointer()) };
    }
}

fn create(
    start: &mut Start,
    container: Option<&Container>,
    job: Option<&Job>,
    flags: u32,
) -> io::Result<Process> {
    let streams = if start.streams { Streams::duplicate()? } else { Streams::none() };
    let inherited: Vec<HANDLE> = streams.handles.iter().map(AsRawHandle::as_raw_handle).collect();
    let jobs: Vec<HANDLE> = job.iter().map(|job| job.handle()).collect();
    let mut sid = container.map(|container| words(&container.sid)).unwrap_or_default();
    let identifiers = container.map(|container| &container.capabilities[..]).unwrap_or_default();
    let mut capabilities = Capabilities::new(identifiers);
    let security = [SECURITY_CAPABILITIES {
        AppContainerSid: sid.as_mut_ptr().cast(),
        Capabilities: capabilities.as_mut_ptr(),
        CapabilityCount: capabilities.count(),
        Reserved: 0,
    }];
    let opt_out = [OPT_OUT];

    let mut attributes = Attributes::new(4)?;
    if !inherited.is_empty() {
        attributes.add(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, &inherited)?;
    }
    if !jobs.is_empty() {
        attributes.add(PROC_THREAD_ATTRIBUTE_JOB_LIST, &jobs)?;
    }
    if let Some(container) = container {
        attributes.add(PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, &security)?;
        if container.lpac {
            attributes.add(PROC_THREAD_ATTRIBUTE_ALL_APPLICATION_PACKAGES_POLICY, &opt_out)?;
        }
    }
    let mut startup = STARTUPINFOEXW::default();
    startup.StartupInfo.cb = u32::try_from(size_of::<STARTUPINFOEXW>()).unwrap_or(0);
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    [
        startup.StartupInfo.hStdInput,
        startup.StartupInfo.hStdOutput,
        startup.StartupInfo.hStdError,
    ] = streams.standard;
    startup.lpAttributeList = attributes.pointer();

    let flags = flags | EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT;
    // SAFETY: each text ends in NUL, and the line is ours to be written to; the structures, and what they point
    // to, live as long as the call. Both handles that are returned are ours.
    unsafe {
        let mut made: PROCESS_INFORMATION = mem::zeroed();
        check(CreateProcessW(
            start.program.as_ptr(),
            start.line.as_mut_ptr(),
            ptr::null(),
            ptr::null(),
            i32::from(!inherited.is_empty()),
            flags,
            start.environment.as_ptr().cast(),
            start.directory.as_ptr(),
            (&raw const startup.StartupInfo).cast(),
            &raw mut made,
        ))?;
        drop(OwnedHandle::from_raw_handle(made.hThread));
        Ok(Process(OwnedHandle::from_raw_handle(made.hProcess)))
    }
}
