//! AppContainer profiles, and their exemption from the isolation of loopback.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::{ptr, slice};

use windows_sys::Win32::Security::{FreeSid, GetLengthSid, PSID, SID_AND_ATTRIBUTES};
use windows_sys::Win32::System::Memory::{GetProcessHeap, HeapFree};

use super::{check_code, function, wide, words};

// userenv.h and netfw.h. Windows 7 has none of them, and wine only some.
type Create = unsafe extern "system" fn(
    name: *const u16,
    display: *const u16,
    description: *const u16,
    capabilities: *const SID_AND_ATTRIBUTES,
    count: u32,
    sid: *mut PSID,
) -> i32;
type Derive = unsafe extern "system" fn(name: *const u16, sid: *mut PSID) -> i32;
type Delete = unsafe extern "system" fn(name: *const u16) -> i32;
type GetConfig =
    unsafe extern "system" fn(count: *mut u32, sids: *mut *mut SID_AND_ATTRIBUTES) -> u32;
type SetConfig = unsafe extern "system" fn(count: u32, sids: *const SID_AND_ATTRIBUTES) -> u32;

const PROFILES: &str = "userenv.dll";
const FIREWALL: &str = "firewallapi.dll";
/// `ERROR_NOT_FOUND`.
const NOT_FOUND: i32 = 1168;
/// `SE_GROUP_ENABLED`.
const ENABLED: u32 = 4;

/// Capabilities as Windows reads them.
pub(super) struct Capabilities {
    /// What the list points to.
    _sids: Vec<Vec<u32>>,
    list: Vec<SID_AND_ATTRIBUTES>,
}

impl Capabilities {
    /// Those with the SIDs `S-1-15-3-N`, for each N.
    pub(super) fn new(identifiers: &[u32]) -> Capabilities {
        let sid = |number: &u32| {
            let [a, b, c, d] = number.to_le_bytes();
            words(&[1, 2, 0, 0, 0, 0, 0, 15, 3, 0, 0, 0, a, b, c, d])
        };
        let mut sids: Vec<Vec<u32>> = identifiers.iter().map(sid).collect();
        let list = sids
            .iter_mut()
            .map(|sid| SID_AND_ATTRIBUTES { Sid: sid.as_mut_ptr().cast(), Attributes: ENABLED })
            .collect();
        Capabilities { _sids: sids, list }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(0)
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut SID_AND_ATTRIBUTES {
        if self.list.is_empty() { ptr::null_mut() } else { self.list.as_mut_ptr() }
    }
}

/// Makes the profile `name`: a container's place in the registry and among the user's files.
///
/// # Errors
///
/// `Unsupported` where Windows has no AppContainers.
pub fn create(name: &str, capabilities: &[u32]) -> io::Result<()> {
    let function = function(PROFILES, c"CreateAppContainerProfile")?;
    let mut capabilities = Capabilities::new(capabilities);
    let (name, mut sid) = (wide(name), ptr::null_mut());
    // SAFETY: the function has this type. The texts end in NUL, the list is as long as it is said to be, and
    // the SID is ours to free.
    unsafe {
        let function: Create = mem::transmute(function);
        let text = name.as_ptr();
        let (list, count) = (capabilities.as_mut_ptr(), capabilities.count());
        let result = check_result(function(text, text, text, list, count, &raw mut sid));
        FreeSid(sid);
        result
    }
}

/// The SID of the container with the profile `name`, whether there is one or not.
///
/// # Errors
///
/// `Unsupported` where Windows has no AppContainers.
pub fn sid(name: &str) -> io::Result<Vec<u8>> {
    let function = function(PROFILES, c"DeriveAppContainerSidFromAppContainerName")?;
    let (name, mut sid) = (wide(name), ptr::null_mut());
    // SAFETY: the function has this type, and the name ends in NUL.
    unsafe {
        let function: Derive = mem::transmute(function);
        check_result(function(name.as_ptr(), &raw mut sid))?;
        let bytes = bytes(sid).to_vec();
        FreeSid(sid);
        Ok(bytes)
    }
}

/// Removes the profile `name`; one that is not there is removed.
///
/// # Errors
///
/// That of the system.
pub fn delete(name: &str) -> io::Result<()> {
    let function = function(PROFILES, c"DeleteAppContainerProfile")?;
    let name = wide(name);
    // SAFETY: the function has this type, and the name ends in NUL.
    let result = check_result(unsafe {
        let function: Delete = mem::transmute(function);
        function(name.as_ptr())
    });
    match result {
        Err(error) if error.raw_os_error() == Some(NOT_FOUND) => Ok(()),
        other => other,
    }
}

/// Exempts the container `sid` from the isolation of loopback, or ends that; other exemptions stay. The list of
/// them is read and then written whole: the caller sees to it that no other run does so meanwhile.
///
/// # Errors
///
/// `PermissionDenied` where the user may not: it takes an administrator.
pub fn exempt(sid: &[u8], exempted: bool) -> io::Result<()> {
    let (get, set) = (
        function(FIREWALL, c"NetworkIsolationGetAppContainerConfig")?,
        function(FIREWALL, c"NetworkIsolationSetAppContainerConfig")?,
    );
    let mut own = words(sid);
    let (mut count, mut found) = (0, ptr::null_mut());
    // SAFETY: the functions have these types. The list that is returned is as long as it is said to be; it and
    // the SIDs in it are ours to free, from the heap of the process. What is handed back lives until it is read.
    unsafe {
        let get: GetConfig = mem::transmute(get);
        let set: SetConfig = mem::transmute(set);
        check_code(get(&raw mut count, &raw mut found))?;
        let length = if found.is_null() { 0 } else { count as usize };
        let listed: &[SID_AND_ATTRIBUTES] =
            if length == 0 { &[] } else { slice::from_raw_parts(found, length) };
        let mut kept: Vec<SID_AND_ATTRIBUTES> =
            listed.iter().filter(|one| bytes(one.Sid) != sid).copied().collect();
        if exempted {
            kept.push(SID_AND_ATTRIBUTES { Sid: own.as_mut_ptr().cast(), Attributes: 0 });
        }
        let result = check_code(set(u32::try_from(kept.len()).unwrap_or(0), kept.as_ptr()));
        for one in listed {
            HeapFree(GetProcessHeap(), 0, one.Sid.cast_const());
        }
        HeapFree(GetProcessHeap(), 0, found.cast::<c_void>().cast_const());
        result
    }
}

/// The bytes of a SID.
///
/// # Safety
///
/// `sid` is a valid one, and lives as long as what is returned is used.
unsafe fn bytes<'a>(sid: PSID) -> &'a [u8] {
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(sid.cast::<u8>(), GetLengthSid(sid) as usize) }
}

/// An HRESULT; those of the facility Win32 hold a code of the system.
fn check_result(result: i32) -> io::Result<()> {
    const WIN32: u32 = 0x8007_0000;
    let code = result.cast_unsigned();
    match result {
        0.. => Ok(()),
        _ if code & 0xffff_0000 == WIN32 => check_code(code & 0xffff),
        _ => Err(io::Error::other(format!("error {code:#010x}"))),
    }
}
