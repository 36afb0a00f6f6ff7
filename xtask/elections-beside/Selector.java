import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.retry.RetryOneTime;

/** A candidate with Curator's selector, which leads inside of a call: says when, and returns when it is told to end. */
public class Selector {
    /** Arguments: hosts, path, id, session timeout in milliseconds. */
    public static void main(String[] arguments) throws Exception {
        int timeout = Integer.parseInt(arguments[3]);
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], timeout, timeout, new RetryOneTime(100));
        client.start();
        LeaderSelector selector = new LeaderSelector(client, arguments[1], new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework leader) throws Exception {
                System.out.println(arguments[2] + " leads");
                System.out.flush();
                // Closing interrupts it, and what it holds is released when it returns.
                Thread.sleep(Long.MAX_VALUE);
            }
        });
        selector.setId(arguments[2]);
        selector.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            selector.close();
            client.close();
        }));
        Thread.sleep(Long.MAX_VALUE);
    }
}
