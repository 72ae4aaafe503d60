//! A scripted name server that records its questions.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// The reply to a question for addresses. Several replies are sent in order.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Addresses that are valid for this many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// An alias, without the addresses of its target.
    Alias(&'static str),
    Code(ResponseCode),
    /// Over UDP a truncated answer; over TCP this address.
    Truncated(IpAddr),
    WrongId(IpAddr),
    WrongQuestion(IpAddr),
    /// An answer from another port than the one of the question.
    FromElsewhere(IpAddr),
    Garbage,
}

impl Reply {
    pub fn address(address: impl Into<IpAddr>) -> Reply {
        Reply::Addresses(vec![address.into()], 30)
    }
}

/// The transport of a question, and its name in lower case.
pub type Question = (&'static str, String);

pub struct NameServer {
    pub address: SocketAddr,
    state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct State {
    replies: Mutex<HashMap<String, Vec<Reply>>>,
    asked: Mutex<Vec<Question>>,
}

impl NameServer {
    pub async fn start() -> NameServer {
        // Both sockets need the same port, so it may take several tries.
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = tcp.local_addr().unwrap();
        let state = Arc::<State>::default();
        let tasks = [
            tokio::spawn(serve_udp(udp, state.clone())),
            tokio::spawn(serve_tcp(tcp, state.clone())),
        ];
        NameServer {
            address,
            state,
            tasks,
        }
    }

    /// Sets the replies from now on; `name` ends with a dot. Other names do not exist.
    pub fn says(&self, name: &str, replies: impl Into<Vec<Reply>>) {
        let mut known = self.state.replies.lock().unwrap();
        known.insert(name.to_owned(), replies.into());
    }

    pub fn asked(&self) -> Vec<Question> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Each name that was asked for, once.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.asked().into_iter().map(|(_, name)| name).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The `dns` value of agent.json.
    pub fn setting(&self) -> Value {
        json!({"cluster_domain": "reef.example", "name_servers": [self.address.to_string()]})
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl State {
    fn replies(&self, way: &'static str, question: &Message) -> Vec<Reply> {
        let name = question.queries[0].name().to_string().to_ascii_lowercase();
        self.asked.lock().unwrap().push((way, name.clone()));
        let known = self.replies.lock().unwrap();
        let none = || vec![Reply::Code(ResponseCode::NXDomain)];
        known.get(&name).cloned().unwrap_or_else(none)
    }
}

async fn serve_udp(socket: UdpSocket, state: Arc<State>) {
    let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut buffer = [0; 4096];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let question = Message::from_vec(&buffer[..length]).unwrap();
        for reply in state.replies("udp", &question) {
            let socket = if let Reply::FromElsewhere(_) = reply {
                &elsewhere
            } else {
                &socket
            };
            let answer = answer(&question, &reply, true);
            socket.send_to(&answer, from).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, state: Arc<State>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve_stream(stream, state.clone()));
    }
}

async fn serve_stream(mut stream: TcpStream, state: Arc<State>) {
    while let Ok(length) = stream.read_u16().await {
        let mut question = vec![0; length.into()];
        stream.read_exact(&mut question).await.unwrap();
        let question = Message::from_vec(&question).unwrap();
        for reply in state.replies("tcp", &question) {
            let answer = answer(&question, &reply, false);
            let length = u16::try_from(answer.len()).unwrap();
            stream.write_u16(length).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    }
}

fn answer(question: &Message, reply: &Reply, datagram: bool) -> Vec<u8> {
    let query = &question.queries[0];
    let name = query.name().clone();
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.add_query(query.clone());
    let of_kind = |ip: &IpAddr| match (query.query_type(), *ip) {
        (RecordType::A, IpAddr::V4(ip)) => Some(RData::A(A(ip))),
        (RecordType::AAAA, IpAddr::V6(ip)) => Some(RData::AAAA(AAAA(ip))),
        _ => None,
    };
    let mut addresses = |ips: &[IpAddr], ttl: u32| {
        for data in ips.iter().filter_map(of_kind) {
            message.add_answer(Record::from_rdata(name.clone(), ttl, data));
        }
    };
    match reply {
        Reply::Addresses(ips, ttl) => addresses(ips, *ttl),
        Reply::Truncated(_) if datagram => message.metadata.truncation = true,
        Reply::Truncated(ip) | Reply::FromElsewhere(ip) => addresses(&[*ip], 30),
        Reply::WrongId(ip) => {
            addresses(&[*ip], 30);
            message.metadata.id = message.metadata.id.wrapping_add(1);
        }
        Reply::WrongQuestion(ip) => {
            addresses(&[*ip], 30);
            message.queries[0].set_name(Name::from_ascii("other.example.").unwrap());
        }
        Reply::Alias(target) => {
            let target = CNAME(Name::from_ascii(target).unwrap());
            message.add_answer(Record::from_rdata(name.clone(), 30, RData::CNAME(target)));
        }
        Reply::Code(code) => message.metadata.response_code = *code,
        Reply::Garbage => {
            let mut bytes = question.metadata.id.to_be_bytes().to_vec();
            bytes.extend([0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0, 0xff, 0xff]);
            return bytes;
        }
    }
    if message.answers.is_empty() {
        let root = Name::root;
        let soa = SOA::new(root(), root(), 1, 30, 30, 30, 30);
        message.add_authority(Record::from_rdata(root(), 30, RData::SOA(soa)));
    }
    message.to_vec().unwrap()
}
