//! Files: their access control lists and their other names.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::{ptr, slice};

use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::Security::Authorization::{
    GetSecurityInfo, SE_FILE_OBJECT, SetSecurityInfo,
};
use windows_sys::Win32::Security::{
    ACL, DACL_SECURITY_INFORMATION, GetSecurityDescriptorControl, InitializeSecurityDescriptor,
    PROTECTED_DACL_SECURITY_INFORMATION, SE_DACL_AUTO_INHERIT_REQ, SE_DACL_AUTO_INHERITED,
    SE_DACL_PROTECTED, SECURITY_DESCRIPTOR, SetKernelObjectSecurity, SetSecurityDescriptorControl,
    SetSecurityDescriptorDacl, UNPROTECTED_DACL_SECURITY_INFORMATION,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_READ_ATTRIBUTES, FILE_SHARE_READ, FILE_SHARE_WRITE, GetFileInformationByHandle,
    GetFinalPathNameByHandleW, READ_CONTROL, WRITE_DAC,
};

use super::{check, check_code, words};
use crate::lower::appcontainer::{Dacl, path};

/// A file or directory whose access control list is changed.
pub struct Object(File);

impl Object {
    /// Opens the object at `path`, a path of policies; a link itself. As long as it is open, neither it nor a
    /// directory above can be moved.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where a directory above has become a link since the path was resolved.
    pub fn open(path: &str) -> io::Result<Object> {
        let native = path::verbatim(path).ok_or(io::ErrorKind::InvalidInput)?;
        let file = OpenOptions::new()
            .access_mode(READ_CONTROL | WRITE_DAC | FILE_READ_ATTRIBUTES)
            .share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE)
            .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
            .open(native)?;
        if name(&file)?.as_deref() != Some(path) {
            let message = format!("{path} leads elsewhere by now");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Object(file))
    }

    /// Its list.
    ///
    /// # Errors
    ///
    /// `Unsupported` where it has none, as on file systems that keep none.
    pub fn list(&self) -> io::Result<Dacl> {
        let (mut acl, mut descriptor): (*mut ACL, _) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the handle is open. The list lies in the descriptor, which is ours to free, and is as long
        // as its header says.
        unsafe {
            check_code(GetSecurityInfo(
                self.0.as_raw_handle(),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION,
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut acl,
                ptr::null_mut(),
                &raw mut descriptor,
            ))?;
            let (mut control, mut revision) = (0, 0);
            GetSecurityDescriptorControl(descriptor, &raw mut control, &raw mut revision);
            let protected = control & SE_DACL_PROTECTED != 0;
            let list = if acl.is_null() {
                None
            } else {
                let bytes = slice::from_raw_parts(acl.cast::<u8>(), usize::from((*acl).AclSize));
                Dacl::parse(bytes, protected)
            };
            LocalFree(descriptor);
            list.ok_or_else(|| {
                let message = "the file system keeps no access control lists";
                io::Error::new(io::ErrorKind::Unsupported, message)
            })
        }
    }

    /// Gives it the list `new` in place of `old`. Where other things are to be inherited by then, Windows writes
    /// the lists of everything below.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` where the list is not the user's to change.
    pub fn set(&self, old: &Dacl, new: &Dacl) -> io::Result<()> {
        let bytes =
            new.bytes().ok_or_else(|| io::Error::other("the access control list is full"))?;
        let list = words(&bytes);
        let inheriting = match (old.protected, new.protected) {
            (false, true) => PROTECTED_DACL_SECURITY_INFORMATION,
            (true, false) => UNPROTECTED_DACL_SECURITY_INFORMATION,
            _ if old.handed_on().eq(new.handed_on()) => {
                return self.set_alone(&list, new.protected);
            }
            _ => 0,
        };
        // SAFETY: the handle is open, and the list is a whole one that lives as long as the call.
        check_code(unsafe {
            SetSecurityInfo(
                self.0.as_raw_handle(),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION | inheriting,
                ptr::null_mut(),
                ptr::null_mut(),
                list.as_ptr().cast(),
                ptr::null(),
            )
        })
    }

    /// The same, without a look at what is below.
    fn set_alone(&self, list: &[u32], protected: bool) -> io::Result<()> {
        // That the entries marked as inherited are.
        const INHERITING: u16 = SE_DACL_AUTO_INHERIT_REQ | SE_DACL_AUTO_INHERITED;
        /// `SECURITY_DESCRIPTOR_REVISION`.
        const REVISION: u32 = 1;
        let control = INHERITING | if protected { SE_DACL_PROTECTED } else { 0 };
        // SAFETY: the descriptor is initialized before it is used; it and the list live as long as the calls.
        unsafe {
            let mut descriptor: SECURITY_DESCRIPTOR = mem::zeroed();
            let pointer = (&raw mut descriptor).cast();
            check(InitializeSecurityDescriptor(pointer, REVISION))?;
            check(SetSecurityDescriptorDacl(pointer, 1, list.as_ptr().cast(), 0))?;
            check(SetSecurityDescriptorControl(pointer, control, control))?;
            let handle = self.0.as_raw_handle();
            check(SetKernelObjectSecurity(handle, DACL_SECURITY_INFORMATION, pointer))
        }
    }
}

/// The path of an open file, as policies have it; `None` where no path of policies is one.
fn name(file: &File) -> io::Result<Option<String>> {
    // More than any path has.
    let mut text = vec![0u16; 32_768];
    // SAFETY: the handle is open, and the buffer is as long as it is said to be.
    let length =
        unsafe { GetFinalPathNameByHandleW(file.as_raw_handle(), text.as_mut_ptr(), 32_768, 0) };
    match text.get(..length as usize) {
        None | Some([]) => Err(io::Error::last_os_error()),
        Some(text) => Ok(String::from_utf16(text).ok().and_then(|text| path::internal(&text))),
    }
}

/// How many names the file has.
///
/// # Errors
///
/// Those of opening it.
pub fn links(path: &Path) -> io::Result<u64> {
    let file = OpenOptions::new()
        .access_mode(FILE_READ_ATTRIBUTES)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
        .open(path)?;
    // SAFETY: the handle is open, and zeros are a value of the structure, which the call fills.
    unsafe {
        let mut information: BY_HANDLE_FILE_INFORMATION = mem::zeroed();
        check(GetFileInformationByHandle(file.as_raw_handle(), &raw mut information))?;
        Ok(information.nNumberOfLinks.into())
    }
}
