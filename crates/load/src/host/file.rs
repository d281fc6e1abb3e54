use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file of the kernel's may be so long. `/proc/stat` of a large machine has some hundred KiB.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A file whose content the kernel makes when it is read: opened once, read from its start each time.
#[derive(Debug)]
pub(super) struct KernelFile {
    path: PathBuf,
    file: Option<File>,
}

impl KernelFile {
    pub(super) fn new(path: impl Into<PathBuf>) -> KernelFile {
        KernelFile { path: path.into(), file: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all of it into the buffer, and gives what `parse` makes of it.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(super) fn read<T, E: std::fmt::Display>(
        &mut self,
        buffer: &mut Vec<u8>,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        if let Err(error) = fill(&mut self.file, &self.path, buffer) {
            // The file of a group that came back is another one.
            self.file = None;
            return Err(told(&error));
        }
        parse(buffer).map_err(|error| told(&error))
    }
}

fn fill(open: &mut Option<File>, path: &Path, buffer: &mut Vec<u8>) -> io::Result<()> {
    let file = match open {
        Some(file) => file,
        None => open.insert(File::open(path)?),
    };
    let mut length = 0;
    loop {
        if buffer.len() - length < 1024 {
            let longer = (buffer.len() * 2).max(8 * 1024);
            if longer > FILE_BYTES_MAX {
                return Err(io::Error::other("too long"));
            }
            buffer.resize(longer, 0);
        }
        // A short read is no end: the kernel gives some files a line or a page at a time.
        match file.read_at(&mut buffer[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    buffer.truncate(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let (mut file, mut buffer) = (KernelFile::new(&path), Vec::new());
        let mut text = || file.read(&mut buffer, |text| Ok::<_, &str>(text.to_vec()));
        assert!(text().expect_err("it is not there").contains("file: "));
        std::fs::write(&path, "one").expect("written");
        assert_eq!(text().as_deref(), Ok(&b"one"[..]));
        let long = vec![b'x'; 100_000];
        std::fs::write(&path, &long).expect("written");
        assert_eq!(text().as_deref(), Ok(&long[..]));
        std::fs::write(&path, "").expect("written");
        assert_eq!(text().as_deref(), Ok(&b""[..]));
    }
}
