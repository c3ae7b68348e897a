//! The machine: networks, files and the terminal.

pub mod bounded_file;
pub mod network;
pub mod private_files;
pub mod served;
pub mod table;
