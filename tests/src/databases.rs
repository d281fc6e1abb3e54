//! Work for MariaDB and MySQL, and what they say of it to somebody else than the agent.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::servers::{Server, program};

impl Server {
    /// Makes the table that [`Server::sysbench`] works on.
    pub fn prepare_sysbench(&self) {
        let created = self.sql_client().args(["--execute", "CREATE DATABASE sbtest"]).output();
        let created = created.expect("mariadb runs");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let prepared = self.sysbench_of("oltp_read_only").arg("prepare").output().expect("sysbench runs");
        assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stdout));
    }

    /// Has sysbench run a test, such as `oltp_read_only`, in so many connections until the value ends.
    pub fn sysbench(&self, test: &str, connections: usize) -> Sysbench {
        let child = self
            .sysbench_of(test)
            .args(["--time=0", &format!("--threads={connections}"), "run"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Sysbench(child.expect("sysbench runs"))
    }

    fn sysbench_of(&self, test: &str) -> Command {
        let mut sysbench = Command::new(program("sysbench"));
        sysbench.args([test, "--mysql-user=root", "--mysql-host=127.0.0.1", "--table-size=1000"]);
        sysbench.arg(format!("--mysql-port={}", self.address.port()));
        sysbench
    }

    /// Looks at what the server itself says, over a connection that is kept.
    pub fn watch_threads(&self) -> Threads {
        let client = self
            .sql_client()
            .args(["--batch", "--skip-column-names", "--unbuffered"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut client = client.expect("mariadb runs");
        let questions = client.stdin.take().expect("a pipe");
        let answers = BufReader::new(client.stdout.take().expect("a pipe"));
        Threads { client, questions, answers }
    }
}

/// sysbench, at work until the value ends.
#[derive(Debug)]
pub struct Sysbench(Child);

impl Drop for Sysbench {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection that asks for `Threads_running`.
#[derive(Debug)]
pub struct Threads {
    client: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Threads {
    /// `SHOW GLOBAL STATUS LIKE 'Threads_running'`, without the thread that answers and without that which starts
    /// events: both servers run it here.
    pub fn running(&mut self) -> u64 {
        let question = b"SHOW GLOBAL STATUS LIKE 'Threads_running';\n";
        self.questions.write_all(question).and_then(|()| self.questions.flush()).expect("asked");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        let figure = line.split_whitespace().nth(1).and_then(|figure| figure.parse::<u64>().ok());
        figure.unwrap_or_else(|| panic!("no figure in {line:?}")).saturating_sub(2)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
