import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.math.BigInteger;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.net.URLEncoder;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import javax.xml.parsers.DocumentBuilderFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

/**
 * What Spark needs of S3, over its HTTP interface, with the manners of S3A: there are no folders, a file is there when it
 * is closed and not before, rename is a copy and a deletion of each file and throws over an existing one.
 *
 * Its signature is none: it is for servers on this machine. In plain old Java, because Janino, which Spark has with it,
 * compiles it.
 */
public class PlainS3FileSystem extends FileSystem {
    private static final String UNCHECKED = "AWS4-HMAC-SHA256 Credential=local/20300101/us-east-1/s3/aws4_request, "
            + "SignedHeaders=host, Signature=0";
    private URI uri;
    private String base;
    private Path working;

    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        setConf(conf);
        uri = URI.create(name.getScheme() + "://" + name.getAuthority());
        base = conf.get("fs.plains3.endpoint") + "/" + name.getAuthority();
        working = new Path(uri + "/");
    }

    public String getScheme() {
        return "s3";
    }

    public URI getUri() {
        return uri;
    }

    public Path getWorkingDirectory() {
        return working;
    }

    public void setWorkingDirectory(Path path) {
        working = path;
    }

    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        byte[] content = call("GET", "/" + escaped(key(path)), null, null);
        if (content == null) {
            throw new FileNotFoundException(path.toString());
        }
        return new FSDataInputStream(new Whole(content));
    }

    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        FileStatus status = statusOf(path);
        if (status != null && (status.isDirectory() || !overwrite)) {
            throw new FileAlreadyExistsException(path.toString());
        }
        return new FSDataOutputStream(new Upload(this, key(path)), null);
    }

    public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
        throw new UnsupportedOperationException("S3 appends nothing");
    }

    /** As S3A since Hadoop 3.3: into a folder that is there, never over a file. */
    public boolean rename(Path source, Path target) throws IOException {
        FileStatus from = statusOf(source);
        if (from == null) {
            throw new FileNotFoundException(source.toString());
        }
        FileStatus to = statusOf(target);
        if (to != null && to.isFile()) {
            throw new FileAlreadyExistsException("Failed to rename " + source + " to " + target + "; destination file exists");
        }
        if (to != null) {
            if (from.isDirectory() && !isEmpty(target)) {
                throw new FileAlreadyExistsException("Failed to rename " + source + " to " + target + "; destination is not empty");
            }
            if (from.isFile()) {
                target = new Path(target, source.getName());
            }
        }
        if (from.isFile()) {
            move(key(source), key(target));
            return true;
        }
        List keys = keysBelow(key(source) + "/");
        for (int i = 0; i < keys.size(); i++) {
            String old = (String) keys.get(i);
            move(old, key(target) + old.substring(key(source).length()));
        }
        return true;
    }

    public boolean delete(Path path, boolean recursive) throws IOException {
        FileStatus status = statusOf(path);
        if (status == null) {
            return false;
        }
        if (status.isFile()) {
            remove(key(path));
            return true;
        }
        List keys = keysBelow(key(path) + "/");
        if (!recursive && keys.size() > 1) {
            throw new IOException(path + " is not empty");
        }
        for (int i = 0; i < keys.size(); i++) {
            remove((String) keys.get(i));
        }
        return true;
    }

    public FileStatus[] listStatus(Path path) throws IOException {
        FileStatus status = statusOf(path);
        if (status == null) {
            throw new FileNotFoundException(path.toString());
        }
        if (status.isFile()) {
            return new FileStatus[] {status};
        }
        List found = new ArrayList();
        String prefix = key(path).isEmpty() ? "" : key(path) + "/";
        String token = null;
        do {
            Document page = page(prefix, token, "/", 1000);
            NodeList files = page.getElementsByTagName("Contents");
            for (int i = 0; i < files.getLength(); i++) {
                Element each = (Element) files.item(i);
                if (!text(each, "Key").endsWith("/")) {
                    found.add(file(text(each, "Key"), Long.parseLong(text(each, "Size"))));
                }
            }
            NodeList folders = page.getElementsByTagName("CommonPrefixes");
            for (int i = 0; i < folders.getLength(); i++) {
                String name = text((Element) folders.item(i), "Prefix");
                found.add(folder(new Path(uri + "/" + name.substring(0, name.length() - 1))));
            }
            token = next(page);
        } while (token != null);
        return (FileStatus[]) found.toArray(new FileStatus[0]);
    }

    /** A marker, as S3A puts one; it says nothing of the folders above. */
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        FileStatus status = statusOf(path);
        if (status != null && status.isFile()) {
            throw new FileAlreadyExistsException(path.toString());
        }
        if (status == null) {
            put(key(path) + "/", new byte[0]);
        }
        return true;
    }

    public FileStatus getFileStatus(Path path) throws IOException {
        FileStatus status = statusOf(path);
        if (status == null) {
            throw new FileNotFoundException(path.toString());
        }
        return status;
    }

    private FileStatus statusOf(Path path) throws IOException {
        String name = key(path);
        if (name.isEmpty()) {
            return folder(path);
        }
        NodeList found = page(name, null, "/", 1000).getElementsByTagName("Contents");
        for (int i = 0; i < found.getLength(); i++) {
            Element each = (Element) found.item(i);
            if (text(each, "Key").equals(name)) {
                return file(name, Long.parseLong(text(each, "Size")));
            }
        }
        boolean isFolder = page(name + "/", null, null, 1).getElementsByTagName("Contents").getLength() > 0;
        return isFolder ? folder(makeQualified(path)) : null;
    }

    private boolean isEmpty(Path folder) throws IOException {
        List keys = keysBelow(key(folder) + "/");
        return keys.isEmpty() || (keys.size() == 1 && keys.get(0).equals(key(folder) + "/"));
    }

    private List keysBelow(String prefix) throws IOException {
        List keys = new ArrayList();
        String token = null;
        do {
            Document page = page(prefix, token, null, 1000);
            NodeList found = page.getElementsByTagName("Contents");
            for (int i = 0; i < found.getLength(); i++) {
                keys.add(text((Element) found.item(i), "Key"));
            }
            token = next(page);
        } while (token != null);
        return keys;
    }

    private Document page(String prefix, String token, String delimiter, int most) throws IOException {
        String query = "?list-type=2&max-keys=" + most + "&prefix=" + escaped(prefix).replace("/", "%2F");
        if (delimiter != null) {
            query += "&delimiter=%2F";
        }
        if (token != null) {
            query += "&continuation-token=" + URLEncoder.encode(token, "UTF-8");
        }
        return parsed(call("GET", query, null, null));
    }

    private static Document parsed(byte[] answer) throws IOException {
        try {
            return DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(new ByteArrayInputStream(answer));
        } catch (IOException error) {
            throw error;
        } catch (Exception error) {
            throw new IOException(error);
        }
    }

    private static String next(Document page) {
        NodeList found = page.getElementsByTagName("NextContinuationToken");
        return found.getLength() == 0 ? null : found.item(0).getTextContent();
    }

    private static String text(Element each, String name) {
        return each.getElementsByTagName(name).item(0).getTextContent();
    }

    private FileStatus file(String name, long size) {
        return new FileStatus(size, false, 1, 33554432L, 0L, new Path(uri + "/" + name));
    }

    private FileStatus folder(Path path) {
        return new FileStatus(0L, true, 1, 0L, 0L, path);
    }

    private void move(String old, String name) throws IOException {
        call("PUT", "/" + escaped(name), new byte[0], "/" + uri.getAuthority() + "/" + escaped(old));
        remove(old);
    }

    private void remove(String name) throws IOException {
        call("DELETE", "/" + escaped(name), null, null);
    }

    void put(String name, byte[] content) throws IOException {
        call("PUT", "/" + escaped(name), content, null);
    }

    /** The answer's body; null where there is no such file. */
    private byte[] call(String method, String rest, byte[] content, String source) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) new URL(base + rest).openConnection();
        connection.setRequestMethod(method);
        connection.setRequestProperty("Authorization", UNCHECKED);
        if (source != null) {
            connection.setRequestProperty("x-amz-copy-source", source);
        }
        if (content != null) {
            connection.setDoOutput(true);
            connection.setRequestProperty("Content-Type", "application/octet-stream");
            connection.setFixedLengthStreamingMode(content.length);
            OutputStream out = connection.getOutputStream();
            out.write(content);
            out.close();
        }
        int status = connection.getResponseCode();
        InputStream in = status < 400 ? connection.getInputStream() : connection.getErrorStream();
        byte[] answer = in == null ? new byte[0] : in.readAllBytes();
        if (status == 404) {
            return null;
        }
        if (status >= 300) {
            throw new IOException(method + " " + rest + ": " + status);
        }
        return answer;
    }

    private String key(Path path) {
        String name = makeQualified(path).toUri().getPath();
        return name.startsWith("/") ? name.substring(1) : name;
    }

    private static String escaped(String name) throws IOException {
        return URLEncoder.encode(name, "UTF-8").replace("+", "%20").replace("%2F", "/");
    }

    String begin(String name) throws IOException {
        byte[] answer = call("POST", "/" + escaped(name) + "?uploads", new byte[0], null);
        return text(parsed(answer).getDocumentElement(), "UploadId");
    }

    /** Put a part; its tag, which is its checksum. */
    String part(String name, String upload, int number, byte[] content) throws IOException {
        call("PUT", "/" + escaped(name) + "?partNumber=" + number + "&uploadId=" + upload, content, null);
        try {
            byte[] digest = MessageDigest.getInstance("MD5").digest(content);
            return String.format("%032x", new Object[] {new BigInteger(1, digest)});
        } catch (NoSuchAlgorithmException error) {
            throw new IOException(error);
        }
    }

    void complete(String name, String upload, List tags) throws IOException {
        StringBuilder told = new StringBuilder("<CompleteMultipartUpload>");
        for (int i = 0; i < tags.size(); i++) {
            told.append("<Part><PartNumber>").append(i + 1).append("</PartNumber><ETag>\"");
            told.append((String) tags.get(i)).append("\"</ETag></Part>");
        }
        told.append("</CompleteMultipartUpload>");
        call("POST", "/" + escaped(name) + "?uploadId=" + upload, told.toString().getBytes("UTF-8"), null);
    }

    /** A file that is there when it is closed; a large one goes in parts while it is written. */
    public static class Upload extends OutputStream {
        private static final int PART = 5 * 1024 * 1024;
        private final PlainS3FileSystem files;
        private final String name;
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        private final List tags = new ArrayList();
        private String upload;
        private boolean isClosed;

        Upload(PlainS3FileSystem files, String name) {
            this.files = files;
            this.name = name;
        }

        public void write(int one) throws IOException {
            buffer.write(one);
            sendIfFull();
        }

        public void write(byte[] from, int at, int count) throws IOException {
            buffer.write(from, at, count);
            sendIfFull();
        }

        private void sendIfFull() throws IOException {
            if (buffer.size() >= PART) {
                send();
            }
        }

        private void send() throws IOException {
            if (upload == null) {
                upload = files.begin(name);
            }
            tags.add(files.part(name, upload, tags.size() + 1, buffer.toByteArray()));
            buffer.reset();
        }

        public void close() throws IOException {
            if (isClosed) {
                return;
            }
            isClosed = true;
            if (upload == null) {
                files.put(name, buffer.toByteArray());
                return;
            }
            if (buffer.size() > 0) {
                send();
            }
            files.complete(name, upload, tags);
        }
    }

    /** A file that was read whole. */
    public static class Whole extends FSInputStream {
        private final byte[] content;
        private int at;

        Whole(byte[] content) {
            this.content = content;
        }

        public void seek(long to) throws IOException {
            if (to < 0 || to > content.length) {
                throw new java.io.EOFException("beyond the end");
            }
            at = (int) to;
        }

        public long getPos() throws IOException {
            return at;
        }

        public boolean seekToNewSource(long to) throws IOException {
            return false;
        }

        public int read() throws IOException {
            return at < content.length ? content[at++] & 255 : -1;
        }

        public int read(byte[] into, int from, int most) throws IOException {
            if (at >= content.length && most > 0) {
                return -1;
            }
            int count = Math.min(most, content.length - at);
            System.arraycopy(content, at, into, from, count);
            at += count;
            return count;
        }

        public int available() throws IOException {
            return content.length - at;
        }
    }
}
