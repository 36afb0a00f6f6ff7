import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.retry.RetryOneTime;

/** A candidate with Curator's own latch: says when it leads, and releases when it is told to end. */
public class Latch {
    /** Arguments: hosts, path, id, session timeout in milliseconds. */
    public static void main(String[] arguments) throws Exception {
        int timeout = Integer.parseInt(arguments[3]);
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], timeout, timeout, new RetryOneTime(100));
        client.start();
        LeaderLatch latch = new LeaderLatch(client, arguments[1], arguments[2]);
        latch.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                latch.close();
                client.close();
            } catch (Exception error) {
                System.err.println(error);
            }
        }));
        latch.await();
        System.out.println(arguments[2] + " leads");
        System.out.flush();
        Thread.sleep(Long.MAX_VALUE);
    }
}
